"""How many answers are kept, and a window without one; the rest: tests/parity.

One token a word, questions of two tokens.
"""

from __future__ import annotations

import numpy as np

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_decoding import Answer, Candidate, DecodingOptions, decode
from sot_paddle.data.squad.span_features import SpanFeatures

CONTEXT = "b c d e"
"""Tokens 4 to 7 of a row of nine: [CLS] a ? [SEP] b c d e [SEP]."""


def answer(starts: dict, ends: dict, context: int = 4, **options) -> Answer:
    """Of a row with so many tokens of context, and scores of its tokens; -9 where none is given."""
    covered = np.full((5 + context, 2), -1)
    scores = np.full((2, 1, 12), -9.0)
    for at in range(context):
        covered[4 + at] = 2 * at, 2 * at + 1
    for end, given in enumerate((starts, ends)):
        scores[end, 0, list(given)] = list(given.values())
    tokens = TokenFeatures.from_rows([range(len(covered))], [4])
    features = SpanFeatures(tokens, np.zeros(1, "int64"), covered)
    question = Question("q", "a ?", CONTEXT)
    return decode([question], features, *scores, DecodingOptions(**options))["q"]


def test_candidates_are_sorted_and_no_more_than_asked_for() -> None:
    found = answer({4: 3.0, 5: 2.0}, {5: 1.0, 6: 0.5}, n_best=3)
    assert [(one.text, one.score) for one in found.candidates] == [
        ("b c", 4.0),
        ("b c d", 3.5),
        ("c", 3.0),
    ]


def test_a_window_without_context_has_no_span() -> None:
    found = answer({1: 1.0}, {1: 1.0}, context=0, null_score="smallest")
    assert found.candidates == (Candidate("", 0.0),)
    assert found.text == ""
