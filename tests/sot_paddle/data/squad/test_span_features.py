"""Windows and labels by hand, on a vocabulary of letters: one token a word."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_features import NO_ANSWER, span_features, windows
from sot_paddle.data.subword import RowForm
from sot_paddle.data.tokenization import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##j", "?", "."]


@pytest.fixture
def tokenizer(tmp_path) -> WordPieceTokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return WordPieceTokenizer(tmp_path / "vocab.txt")


def ask(context: str, answer: str | None = None, name: str = "q") -> Question:
    given = () if answer is None else (answer,)
    return Question(name, "a ?", context, given, tuple(context.index(text) for text in given))


@pytest.mark.parametrize(
    ("tokens", "room", "stride", "expected"),
    [
        (10, 4, 1, [(0, 4), (3, 7), (6, 10)]),
        (10, 4, 3, [(start, start + 4) for start in range(7)]),
        (4, 4, 1, [(0, 4)]),
        (5, 4, 1, [(0, 4), (3, 5)]),
        (0, 4, 1, [(0, 0)]),
    ],
)
def test_windows(tokens, room, stride, expected) -> None:
    assert windows(tokens, room, stride) == expected


def test_rows_of_a_long_context(tokenizer) -> None:
    found = span_features([ask("b c d e f", "d e")], tokenizer, max_length=8, stride=1)
    pieces = [tokenizer.tokens(found.tokens.row(at)) for at in range(len(found))]
    start = ["[CLS]", "a", "?", "[SEP]"]
    assert pieces == [[*start, *"bcd", "[SEP]"], [*start, *"def", "[SEP]"]]
    assert found.tokens.boundaries.tolist() == [4, 4]
    # the first window holds d alone: cut by the stride, it has no answer; the second has d and e
    assert found.tokens.labels.tolist() == [list(NO_ANSWER), [4, 5]]
    assert found.questions.tolist() == [0, 0]
    none = [[-1, -1]]
    assert found.characters_of(1).tolist() == none * 4 + [[4, 5], [6, 7], [8, 9]] + none


@pytest.mark.parametrize(
    ("answer", "span"),
    [
        ("b", (4, 4)),
        ("f", (8, 8)),
        ("b c d e f", (4, 8)),
        ("c d", (5, 6)),
        (None, NO_ANSWER),
    ],
)
def test_answers_at_both_ends_and_none(tokenizer, answer, span) -> None:
    found = span_features([ask("b c d e f", answer)], tokenizer, max_length=12, stride=2)
    assert found.tokens.labels.tolist() == [list(span)]


def test_an_answer_inside_a_word_takes_the_pieces_that_cover_it(tokenizer) -> None:
    found = span_features([ask("b ij. c", "j")], tokenizer, max_length=12, stride=2)
    assert tokenizer.tokens(found.tokens.row(0))[4:7] == ["b", "i", "##j"]
    assert found.tokens.labels.tolist() == [[6, 6]]
    whole = span_features([ask("b ij. c", "ij.")], tokenizer, max_length=12, stride=2)
    assert whole.tokens.labels.tolist() == [[5, 7]]


def test_the_first_of_several_answers_is_learnt(tokenizer) -> None:
    question = Question("q", "a", "b c d", ("d", "b"), (4, 0))
    assert span_features([question], tokenizer).tokens.labels.tolist() == [[5, 5]]


def test_the_published_labels_lose_the_last_token_of_a_window(tokenizer) -> None:
    asked = [ask("b c d e f", "d e"), ask("b c d e f", "f", "r"), ask("b c", "b c", "s")]
    options = {"max_length": 8, "stride": 1}
    right = span_features(asked, tokenizer, **options).tokens.labels
    quirk = span_features(asked, tokenizer, **options, published_labels=True).tokens.labels
    assert right.tolist() == [[0, 0], [4, 5], [0, 0], [6, 6], [4, 5]]
    assert quirk.tolist() == [[0, 0], [4, 5], [0, 0], [7, 6], [4, 5]]


def test_questions_of_several_contexts_and_an_empty_one(tokenizer) -> None:
    asked = [ask("b c d e", name="x"), Question("y", "a", "", (), ()), ask("d", name="z")]
    found = span_features(asked, tokenizer, max_length=8, stride=0)
    assert found.questions.tolist() == [0, 0, 1, 2]
    assert found.tokens.lengths.tolist() == [8, 6, 4, 6]
    assert (found.characters_of(2) == -1).all()
    np.testing.assert_array_equal(found.tokens.indices, range(4))


def test_a_question_that_leaves_no_room_is_refused(tokenizer) -> None:
    long = Question("q7", "a b c d", "e", (), ())
    with pytest.raises(DataError, match="question q7 has 4 tokens: 9 leave 2 for the context"):
        span_features([long], tokenizer, max_length=9, stride=2)


def test_rows_have_the_special_tokens_of_the_language_model(tokenizer) -> None:
    """Two separators between question and context, and no token types."""
    tokenizer.form = RowForm((2,), (3, 3), (3,), typed=False)
    found = span_features([ask("b c d e f", "d e")], tokenizer, max_length=9, stride=1)
    start = ["[CLS]", "a", "?", "[SEP]", "[SEP]"]
    pieces = [tokenizer.tokens(found.tokens.row(at)) for at in range(len(found))]
    assert pieces == [[*start, *"bcd", "[SEP]"], [*start, *"def", "[SEP]"]]
    assert found.tokens.boundaries.tolist() == [9, 9]
    assert found.tokens.labels.tolist() == [list(NO_ANSWER), [5, 6]]
    assert found.characters_of(1)[5:8].tolist() == [[4, 5], [6, 7], [8, 9]]


def test_a_language_model_without_a_first_token_is_refused(tokenizer) -> None:
    tokenizer.form = RowForm((), (3,), (2,))
    with pytest.raises(DataError, match="needs a language model whose rows begin with a token"):
        span_features([ask("b c")], tokenizer)
