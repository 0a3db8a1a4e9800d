"""Files of answers: what is written is what the readers and the command take."""

from __future__ import annotations

import json
import math

import pytest

from sot_paddle.data.squad.answer_files import read_answers, read_null_odds, write_answers
from sot_paddle.data.squad.span_decoding import Answer, Candidate
from sot_paddle.train.squad_evaluation import run_command

ANSWERS = {
    "a": Answer("1066", (Candidate("1066", 3.0), Candidate("in 1066", 2.0)), 1.0),
    "b": Answer("", (Candidate("é", 1.0),), 4.0),
}
PARAGRAPH = {
    "context": "They came in 1066.",
    "qas": [
        {"id": "a", "question": "?", "answers": [{"text": "1066", "answer_start": 13}]},
        {"id": "b", "question": "?", "answers": [], "is_impossible": True},
        {"id": "c", "question": "?", "answers": [], "is_impossible": True},
    ],
}


def test_the_three_files(tmp_path) -> None:
    path = write_answers(tmp_path / "new", ANSWERS)
    assert read_answers(path) == {"a": "1066", "b": ""}
    assert read_null_odds(tmp_path / "new" / "null_odds.json") == {"a": -2.0, "b": 3.0}
    best = json.loads((tmp_path / "new" / "nbest_predictions.json").read_text("utf-8"))
    total = math.exp(0) + math.exp(-1) + math.exp(-2)
    assert best["a"][1] == {
        "text": "in 1066",
        "probability": pytest.approx(math.exp(-1) / total),
        "score": 2.0,
    }
    assert [one["text"] for one in best["b"]] == ["é", ""]


def test_the_command_scores_them(tmp_path, capsys) -> None:
    write_answers(tmp_path, ANSWERS)
    data = tmp_path / "dev.json"
    data.write_text(json.dumps({"data": [{"paragraphs": [PARAGRAPH]}]}), encoding="utf-8")
    files = [str(data), str(tmp_path / "predictions.json")]
    odds = ["--na-prob-file", str(tmp_path / "null_odds.json"), "--out-file", str(tmp_path / "o")]
    assert run_command([*files, *odds, "--na-prob-thresh", "-3"]) == 0
    printed, said = capsys.readouterr()
    assert said == "1 of 3 questions have no prediction and are not scored\n"
    scores = json.loads(printed)
    assert scores == json.loads((tmp_path / "o").read_text("utf-8"))
    assert (scores["exact"], scores["HasAns_exact"], scores["total"]) == (50.0, 0.0, 2)
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (100.0, -2.0)


@pytest.mark.parametrize("content", ["{", "[]", '{"a": NaN}', '{"a": []}', None])
def test_a_file_of_another_form_is_one_line(tmp_path, capsys, content) -> None:
    data, given = tmp_path / "dev.json", tmp_path / "given.json"
    data.write_text(json.dumps({"data": [{"paragraphs": [PARAGRAPH]}]}), encoding="utf-8")
    if content is not None:
        given.write_text(content, encoding="utf-8")
    for read in (read_answers, read_null_odds):
        with pytest.raises(ValueError, match=r"given\.json"):
            read(given)
    assert run_command([str(data), str(given)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("evaluate_squad: ")
    assert error.count("\n") == 1
