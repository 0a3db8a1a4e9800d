"""SQuAD: the official file, rows of windows, answers and their files; values: tests/parity."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.squad import (
    NO_ANSWER,
    Answer,
    DecodingOptions,
    Question,
    SpanFeatures,
    decode,
    read_questions,
    score_answers,
    span_features,
    write_answers,
)
from sot_paddle.data.subword import RowForm, SubwordTokenizer
from sot_paddle.data.tokenizers import word_piece_tokenizer
from tests.sot_paddle.conftest import tokens_of
from tests.sot_paddle.data.conftest import letters

CONTEXT = "The Normans came in 1066."


def write(path, *asked) -> None:
    paragraph = {"context": CONTEXT, "qas": asked}
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
        ([qa("a", ("1066", 20), is_impossible=True)], "is_impossible, and has 1 answers"),
        ([{"id": "a"}], "question a: expected 'answers' to be a list, got None"),
    ],
)
def test_a_broken_question_is_refused(tmp_path, asked, message) -> None:
    write(tmp_path / "dev.json", *asked)
    with pytest.raises(ValueError, match=message):
        read_questions(tmp_path / "dev.json")


def test_a_broken_file_is_refused(tmp_path) -> None:
    (tmp_path / "dev.json").write_text('{"data": [{}]}', encoding="utf-8")
    with pytest.raises(ValueError, match="article 0: expected 'paragraphs' to be a list"):
        read_questions(tmp_path / "dev.json")


@pytest.fixture
def tokenizer(tmp_path) -> SubwordTokenizer:
    return letters(tmp_path)


def ask(context: str, answer: str | None = None, name: str = "q") -> Question:
    given = () if answer is None else (answer,)
    return Question(name, "a ?", context, given, tuple(context.index(text) for text in given))


def test_a_question_that_leaves_no_room_is_refused(tokenizer) -> None:
    long = Question("q7", "a b c d", "e", (), ())
    with pytest.raises(ValueError, match="question q7 has 4 tokens: 9 leave 2 for the context"):
        span_features([long], tokenizer, max_length=9, stride=2)


def test_rows_have_the_special_tokens_of_the_language_model(tokenizer) -> None:
    """Two separators between question and context, and no token types."""
    tokenizer.form = RowForm((2,), (3, 3), (3,), typed=False)
    found = span_features([ask("b c d e f", "d e")], tokenizer, max_length=9, stride=1)
    start = ["[CLS]", "a", "?", "[SEP]", "[SEP]"]
    pieces = [tokens_of(tokenizer, found.tokens.row(at)) for at in range(len(found))]
    assert pieces == [[*start, *"bcd", "[SEP]"], [*start, *"def", "[SEP]"]]
    assert found.tokens.boundaries.tolist() == [9, 9]
    assert found.tokens.labels.tolist() == [list(NO_ANSWER), [5, 6]]
    assert found.characters_of(1)[5:8].tolist() == [[4, 5], [6, 7], [8, 9]]


def test_a_window_without_context_has_no_span() -> None:
    tokens = TokenFeatures.from_rows([range(5)], [4])  # [CLS] a ? [SEP] [SEP]
    features = SpanFeatures(tokens, np.zeros(1, "int64"), np.full((5, 2), -1))
    starts = ends = np.eye(1, 12, 1)
    answers = decode([ask("b c")], features, starts, ends, DecodingOptions(null_score="smallest"))
    assert answers["q"] == Answer("", 0.0, 0.0)


ANSWERS = {"a": Answer("1066", 3.0, 1.0), "b": Answer("", 1.0, 4.0)}
ASKED = [qa("a", ("1066", 20)), qa("b", is_impossible=True), qa("c", is_impossible=True)]


def test_the_file_of_answers(tmp_path) -> None:
    path = write_answers(tmp_path / "new", ANSWERS)
    assert json.loads(path.read_text("utf-8")) == {"a": "1066", "b": ""}


def test_questions_without_an_answer_are_left_out() -> None:
    """As the official script does."""
    asked = [Question(name, "?", "Normans", ("Normans",), (0,)) for name in "ab"]
    assert score_answers(asked, {"a": "Normans"})["total"] == 1


def test_every_answer_of_the_real_file_is_found_in_some_window(shared_file) -> None:
    questions = read_questions(shared_file("data/squad_v2/dev-v2.0.json"))
    assert (len(questions), sum(not question.answers for question in questions)) == (6078, 3168)
    tokenizer = word_piece_tokenizer(shared_file("data/vocab/bert-base-uncased/vocab.txt"))
    found = span_features(questions[:1500], tokenizer)
    starts, ends = found.tokens.labels.T
    answered = {int(owner) for owner in found.questions[starts > 0]}
    assert answered == {at for at, question in enumerate(questions[:1500]) if question.answers}
    for row in (starts > 0).nonzero()[0]:
        question = questions[found.questions[row]]
        covered = found.characters_of(row)
        text = question.context[covered[starts[row], 0] : covered[ends[row], 1]]
        assert question.answers[0] in text
