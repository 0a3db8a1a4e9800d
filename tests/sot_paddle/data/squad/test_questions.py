"""The official file: what is read, and every refusal with its place."""

from __future__ import annotations

import json

import pytest

from sot_paddle.data.errors import DataError
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
        ([qa("a", ("1066", 19))], "question a: the answer '1066' is not at 19 of its context"),
        ([qa("a", ("1066", -5))], "is not at -5"),
        ([qa("a", ("1066", 20), is_impossible=True)], "is_impossible, and has 1 answers"),
        ([{"id": 3}], "paragraph 0: expected 'id' to be a str, got 3"),
        ([{"id": "a"}], "question a: expected 'answers' to be a list, got None"),
        ([], "holds no question"),
    ],
)
def test_a_broken_question_is_refused(tmp_path, asked, message) -> None:
    write(tmp_path / "dev.json", *asked)
    with pytest.raises(DataError, match=message):
        read_questions(tmp_path / "dev.json")


def test_answers_at_wrong_places_are_told_all_at_once_with_their_own(tmp_path) -> None:
    file = tmp_path / "train.json"
    asked = [
        qa("a", ("1066", 0)),
        qa("b", ("1066", 20), ("in", 99)),
        qa("c", ("London", 4)),
        qa("d", ("1066", 20)),
        qa("e", ("e", 3)),
    ]
    write(file, *asked)
    with pytest.raises(DataError) as caught:
        read_questions(file)
    begin, *lines = str(caught.value).split("question ")
    assert begin.startswith(f"{file}: 4 answer(s) not at their answer_start (characters of")
    assert [line.removesuffix("; ") for line in lines] == [
        "a: the answer '1066' is not at 0 of its context, it is at 20",
        "b: the answer 'in' is not at 99 of its context, it is at 17",
        "c: the answer 'London' is not at 4 of its context, it is nowhere in it",
        "e: the answer 'e' is not at 3 of its context, it is at 2, 15",
    ]
    write(file, *(qa(f"q{number}", ("1066", 0)) for number in range(12)))
    with pytest.raises(
        DataError, match=r"12 answer\(s\).*question q9: .*at 20; and 2 more$"
    ) as told:
        read_questions(file)
    assert str(told.value).count("question q") == 10


def test_half_a_character_is_refused_with_its_place(tmp_path) -> None:
    write(tmp_path / "dev.json", {**qa(), "question": "Who \ud83d?"})
    said = r"question a, 'question': expected whole characters, found \\ud83d without .* 'Who '"
    with pytest.raises(ValueError, match=said):
        read_questions(tmp_path / "dev.json")


def test_a_broken_file_is_refused(tmp_path) -> None:
    file = tmp_path / "dev.json"
    with pytest.raises(ValueError, match=r"cannot read .*dev.json: No such file"):
        read_questions(file)
    file.write_text("[", encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON"):
        read_questions(file)
    for content in ("[1]", '{"data": [{}]}', '{"data": [{"paragraphs": [{"context": 1}]}]}'):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match="expected '(data|paragraphs|context)' to be a"):
            read_questions(file)
