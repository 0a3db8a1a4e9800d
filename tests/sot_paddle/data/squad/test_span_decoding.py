"""Answers from scores, by hand: one token a word, questions of two tokens."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_decoding import Answer, Candidate, DecodingOptions, decode
from sot_paddle.data.squad.span_features import SpanFeatures
from sot_paddle.data.token_features import TokenFeatures

CONTEXT = "b c d e"
"""Tokens 4 to 7 of a row of nine: [CLS] a ? [SEP] b c d e [SEP]."""


def rows(count: int = 1, context: int = 4) -> SpanFeatures:
    length = 5 + context
    tokens = TokenFeatures.from_rows([range(length)] * count, [4] * count)
    covered = np.full((length, 2), -1)
    for at in range(context):
        covered[4 + at] = 2 * at, 2 * at + 1
    return SpanFeatures(tokens, np.zeros(count, "int64"), np.tile(covered, (count, 1)))


def scores(count: int = 1, **given: float) -> np.ndarray:
    """(count, 12) scores: -9, but ``t4=1`` scores token 4 of row 0, ``t4_1`` of row 1."""
    found = np.full((count, 12), -9.0)
    for name, value in given.items():
        token, _, row = name[1:].partition("_")
        found[int(row or 0), int(token)] = value
    return found


def answer(starts, ends, features=None, **options) -> Answer:
    question = Question("q", "a ?", CONTEXT)
    features = features or rows(len(starts))
    return decode([question], features, starts, ends, DecodingOptions(**options))["q"]


def test_the_best_span_of_the_context_is_the_answer() -> None:
    found = answer(scores(t5=2.0, t6=1.0, t2=9.0, t8=9.0, t10=9.0), scores(t6=1.5, t11=9.0))
    assert found.text == "c d"
    assert found.candidates[0] == Candidate("c d", 3.5)
    assert found.null_score == -18.0
    assert found.null_odds == -21.5


def test_a_span_does_not_end_before_it_starts_nor_is_it_too_long() -> None:
    starts, ends = scores(t4=2.0, t7=1.0), scores(t4=-4.0, t6=3.0, t7=-1.0)
    assert answer(starts, ends).text == "b c d"
    assert answer(starts, ends, max_tokens=2).text == "e"
    assert answer(starts, ends, max_tokens=3).text == "b c d"


def test_only_the_best_starts_and_ends_are_combined() -> None:
    starts, ends = scores(t7=3.0, t4=2.0), scores(t4=3.0, t7=-8.0)
    assert [one.text for one in answer(starts, ends, n_best=1).candidates] == [""]
    found = answer(starts, ends, n_best=2).candidates
    assert [(one.text, one.score) for one in found] == [("b", 5.0), ("e", -5.0)]


def test_candidates_are_sorted_and_no_more_than_asked_for() -> None:
    found = answer(scores(t4=3.0, t5=2.0), scores(t5=1.0, t6=0.5), n_best=3)
    assert [(one.text, one.score) for one in found.candidates] == [
        ("b c", 4.0),
        ("b c d", 3.5),
        ("c", 3.0),
    ]


def test_no_answer_wins_by_its_score_and_the_threshold() -> None:
    starts, ends = scores(t0=1.0, t5=1.0), scores(t0=1.5, t5=1.0)
    assert answer(starts, ends).text == ""  # 2.5 against 2
    assert answer(starts, ends, threshold=0.5).text == ""  # a tie is no answer
    assert answer(starts, ends, threshold=0.6).text == "c"
    assert answer(starts, ends).null_odds == pytest.approx(0.5)


def test_the_null_score_of_several_windows() -> None:
    """QUIRK: the original keeps the largest and calls it the smallest."""
    starts = scores(2, t0=4.0, t5=1.0, t0_1=-2.0)
    ends = scores(2, t0=0.0, t5=1.0, t0_1=0.0)
    published = answer(starts, ends)
    assert (published.text, published.null_score) == ("", 4.0)
    smallest = answer(starts, ends, null_score="smallest")
    assert (smallest.text, smallest.null_score) == ("c", -2.0)


def test_windows_share_their_candidates() -> None:
    starts, ends = scores(2, t4=1.0, t6_1=3.0), scores(2, t4=1.0, t6_1=3.0)
    found = answer(starts, ends)
    assert found.text == "d"
    assert found.candidates[0] == Candidate("d", 6.0)
    assert Candidate("b", 2.0) in found.candidates


def test_a_window_without_context_has_no_span() -> None:
    found = answer(scores(t1=1.0), scores(t1=1.0), rows(context=0), null_score="smallest")
    assert found.candidates == (Candidate("", 0.0),)
    assert found.text == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 0}, "n_best must be at least 1, got 0"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"null_score": "largest"}, "null_score must be one of published, smallest, got 'largest'"),
    ],
)
def test_options_that_cannot_be(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        DecodingOptions(**options)
