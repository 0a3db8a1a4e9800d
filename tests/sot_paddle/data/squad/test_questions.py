"""The official file: what is read, and every refusal with its place."""

from __future__ import annotations

import json

import pytest

from sot_paddle.data.squad.questions import Question, read_questions

CONTEXT = "The Normans came in 1066."


def write(path, *asked, **changes) -> None:
    paragraph = {"context": CONTEXT, "qas": list(asked)} | changes
    content = {"version": "v2.0", "data": [{"title": "N", "paragraphs": [paragraph]}]}
    path.write_text(json.dumps(content), encoding="utf-8")


def qa(name: str = "a", *answers: tuple[str, int], **more) -> dict:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": "When?", "answers": given, **more}


def test_questions_come_in_the_file_s_order(tmp_path) -> None:
    file = tmp_path / "dev.json"
    write(
        file,
        qa("b", ("1066", 20), ("in 1066", 17), is_impossible=False),
        qa("a", is_impossible=True, plausible_answers=[{"text": "x", "answer_start": 0}]),
        qa("c", ("1066", 20)),  # SQuAD 1.1 has no is_impossible
    )
    assert read_questions(file) == [
        Question("b", "When?", CONTEXT, ("1066", "in 1066"), (20, 17)),
        Question("a", "When?", CONTEXT),
        Question("c", "When?", CONTEXT, ("1066",), (20,)),
    ]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([qa(), qa()], "the question id 'a' is given twice"),
        (
            [qa("a", ("1066", 20), ("in", 99))],
            r"question a: the answer 'in' is not at 99 of its context .* it is first at 17",
        ),
        ([qa("a", ("1066", -5))], "is not at -5"),
        ([qa("a", ("London", 4))], "first at -1"),
        ([qa("a", ("1066", 20), is_impossible=True)], "is_impossible, and has 1 answers"),
        ([{"id": 3}], "paragraph 0: expected 'id' to be a str, got 3"),
        ([{"id": "a"}], "question a: expected 'answers' to be a list, got None"),
        ([], "holds no question"),
        (
            [{**qa(), "question": "Who \ud83d?"}],
            r"question a, 'question': expected whole characters, found \\ud83d without .* 'Who '",
        ),
    ],
)
def test_a_broken_question_is_refused(tmp_path, asked, message) -> None:
    write(tmp_path / "dev.json", *asked)
    with pytest.raises(ValueError, match=message):
        read_questions(tmp_path / "dev.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*dev.json: No such file"),
        ("[", "dev.json: not JSON"),
        ("[1]", "dev.json: expected a JSON object"),
        ('{"data": [{}]}', "article 0: expected 'paragraphs' to be a list"),
        ('{"data": [{"paragraphs": [{"context": 1}]}]}', "expected 'context' to be a str"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, content, message) -> None:
    if content is not None:
        (tmp_path / "dev.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_questions(tmp_path / "dev.json")
