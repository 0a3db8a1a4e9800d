"""Rows of a language model, refusals; windows, labels, contexts: tests/parity.

A vocabulary of letters: one token a word.
"""

from __future__ import annotations

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_features import NO_ANSWER, span_features
from sot_paddle.data.subword import RowForm
from sot_paddle.data.tokenizers import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##j", "?", "."]


@pytest.fixture
def tokenizer(tmp_path) -> WordPieceTokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return WordPieceTokenizer(tmp_path / "vocab.txt")


def ask(context: str, answer: str | None = None, name: str = "q") -> Question:
    given = () if answer is None else (answer,)
    return Question(name, "a ?", context, given, tuple(context.index(text) for text in given))


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
