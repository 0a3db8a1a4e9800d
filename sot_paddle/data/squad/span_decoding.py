"""From start and end scores of rows to one answer for each question, or none.

Shape legend: n rows, T positions of a padded row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_features import SpanFeatures

NULL_SCORES = ("published", "smallest")


@dataclass(frozen=True)
class DecodingOptions:
    """How spans are chosen.

    Attributes:
        n_best: starts and ends of a row that are combined, and answers that are kept.
        max_tokens: longest answer in tokens.
        threshold: a question has no answer when its null score is at least this much above the
            best answer's.
        null_score: over the rows of a question, ``"published"``: QUIRK, the largest, or
            ``"smallest"``, which the original says it means.
    """

    n_best: int = 20
    max_tokens: int = 30
    threshold: float = 0.0
    null_score: str = "published"


@dataclass(frozen=True)
class Candidate:
    """A possible answer: its text, and the sum of its start and end score."""

    text: str
    score: float


@dataclass(frozen=True)
class Answer:
    """What a model says to a question."""

    text: str  # the answer, "" for none
    candidates: tuple[Candidate, ...]  # the best spans, best first; at least one
    null_score: float

    @property
    def null_odds(self) -> float:
        """How far no answer is above the best span; compared with the threshold."""
        return self.null_score - self.candidates[0].score


def decode(
    questions: Sequence[Question],
    features: SpanFeatures,
    starts: np.ndarray,
    ends: np.ndarray,
    options: DecodingOptions,
) -> dict[str, Answer]:
    """Answer every question: question id -> answer, in the order of the questions.

    Args:
        starts: (n, T) scores of each token as the first of the answer.
        ends: (n, T) scores of each token as the last.

    Source: C.4.
    """
    candidates: list[list[Candidate]] = [[] for _ in questions]
    nulls: list[list[float]] = [[] for _ in questions]
    for row, owner in enumerate(features.questions):
        nulls[owner].append(float(starts[row, 0]) + float(ends[row, 0]))
        candidates[owner] += _spans(
            questions[owner].context, features.characters_of(row), starts[row], ends[row], options
        )
    pick = max if options.null_score == "published" else min
    return {
        question.id: _answer(spans, pick(scores), options)
        for question, spans, scores in zip(questions, candidates, nulls, strict=True)
    }


def _answer(spans: list[Candidate], null: float, options: DecodingOptions) -> Answer:
    best = sorted(spans, key=lambda span: -span.score)[: options.n_best]
    best = best or [Candidate("", 0.0)]  # no pair of the best starts and ends makes a span
    answered = null - best[0].score < options.threshold
    return Answer(best[0].text if answered else "", tuple(best), null)


def _spans(
    context: str,
    characters: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    options: DecodingOptions,
) -> list[Candidate]:
    """The spans of one row's context between its best starts and its best ends."""
    first, last = (
        np.argsort(-scores, kind="stable")[: options.n_best] for scores in (starts, ends)
    )
    words = np.flatnonzero(characters[:, 0] >= 0)
    if not len(words):
        return []
    low, high = words[0], words[-1]
    first, last = (places[(places >= low) & (places <= high)] for places in (first, last))
    return [
        Candidate(
            context[characters[start, 0] : characters[end, 1]],
            float(starts[start]) + float(ends[end]),
        )
        for start in first
        for end in last
        if start <= end < start + options.max_tokens
    ]
