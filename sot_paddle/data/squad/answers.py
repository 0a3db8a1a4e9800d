"""Answers from the scores of rows, their file, and official scores in per cent, as of SQuAD 2.0.

Shape legend: n rows, T positions of a padded row.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.squad.questions import Question, SpanFeatures
from sot_paddle.strict_json import dumps

NULL_SCORES = ("published", "smallest")


@dataclass(frozen=True)
class DecodingOptions:
    """How spans are chosen."""

    n_best: int = 20  # starts and ends of a row that are combined, and answers that are kept
    max_tokens: int = 30  # of the longest answer
    threshold: float = 0.0  # no answer where the null score is this much above the best answer's
    # over the rows of a question: QUIRK, the largest; "smallest" is what the original says it means
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


def decode(
    questions: Sequence[Question],
    features: SpanFeatures,
    starts: np.ndarray,
    ends: np.ndarray,
    options: DecodingOptions,
) -> dict[str, Answer]:
    """Answer every question: question id -> answer, in the order of the questions.

    ``starts`` and ``ends`` (n, T) score each token as the answer's first and last. Source: C.4.
    """
    candidates: list[list[Candidate]] = [[] for _ in questions]
    nulls: list[list[float]] = [[] for _ in questions]
    for row, owner in enumerate(features.questions):
        nulls[owner].append(float(starts[row, 0]) + float(ends[row, 0]))
        context, characters = questions[owner].context, features.characters_of(row)
        candidates[owner] += _spans(context, characters, starts[row], ends[row], options)
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


ANSWERS = "predictions.json"
"""Question id -> answer, in the official form."""


def write_answers(folder: str | Path, answers: Mapping[str, Answer]) -> Path:
    """Write the answers by question id; returns the path of `ANSWERS`."""
    texts = {name: answer.text for name, answer in answers.items()}
    return write_atomically(Path(folder) / ANSWERS, dumps(texts).encode("utf-8"))


_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(answer: str) -> str:
    """Lower case without punctuation, without a, an, the, and with single spaces."""
    plain = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def f1_of(gold: str, answer: str) -> float:
    """F1 of the words that both have; of empty answers 1 where both are empty, else 0."""
    gold_words, answer_words = normalized(gold).split(), normalized(answer).split()
    same = sum((Counter(gold_words) & Counter(answer_words)).values())
    if not same:
        return float(gold_words == answer_words)
    precision, recall = same / len(answer_words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def score_answers(questions: Sequence[Question], answers: Mapping[str, str]) -> dict[str, float]:
    """The official scores; a question without an entry in ``answers`` is not scored.

    Args:
        answers: question id -> answer, "" for none.

    Returns:
        ``exact``, ``f1`` and ``total``; the same after ``HasAns_`` and ``NoAns_`` where there are
        such questions.

    Raises:
        ValueError: no question is answered.
    """
    scored = [question for question in questions if question.id in answers]
    if not scored:
        raise ValueError(f"none of the {len(questions)} questions has an answer in the predictions")
    exact, f1 = [], []
    for question in scored:
        answer = answers[question.id]
        golds = [text for text in question.answers if normalized(text)] or [""]
        exact.append(float(normalized(answer) in map(normalized, golds)))
        f1.append(max(f1_of(gold, answer) for gold in golds))
    answerable = np.array([bool(question.answers) for question in scored])
    scores = {}
    parts = {"": answerable | True, "HasAns_": answerable, "NoAns_": ~answerable}
    for prefix, chosen in parts.items():
        if chosen.any():
            scores[f"{prefix}exact"] = 100.0 * float(np.mean(np.array(exact)[chosen]))
            scores[f"{prefix}f1"] = 100.0 * float(np.mean(np.array(f1)[chosen]))
            scores[f"{prefix}total"] = int(chosen.sum())
    return scores
