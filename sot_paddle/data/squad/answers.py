"""Answers from the scores of rows, their files, and official scores in per cent, as of SQuAD 2.0.

Shape legend: n rows, T positions of a padded row.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.squad.questions import Question, SpanFeatures
from sot_paddle.reading import read_json
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


ANSWERS, NULL_ODDS, CANDIDATES = "predictions.json", "null_odds.json", "nbest_predictions.json"
"""Question id -> answer; -> how far no answer is above the best span; -> the best spans."""


def write_answers(folder: str | Path, answers: Mapping[str, Answer]) -> Path:
    """Write the three files of answers by question id; returns the path of `ANSWERS`."""
    folder = Path(folder)
    contents = {
        NULL_ODDS: {name: answer.null_odds for name, answer in answers.items()},
        CANDIDATES: {name: _best(answer) for name, answer in answers.items()},
        ANSWERS: {name: answer.text for name, answer in answers.items()},
    }
    for name, content in contents.items():
        write_atomically(folder / name, dumps(content).encode("utf-8"))
    return folder / ANSWERS


def _best(answer: Answer) -> list[dict[str, Any]]:
    """The candidates with their shares of a softmax over them and no answer."""
    scores = [*(candidate.score for candidate in answer.candidates), answer.null_score]
    weights = [math.exp(score - max(scores)) for score in scores]
    texts = [*(candidate.text for candidate in answer.candidates), ""]
    return [
        {"text": text, "probability": weight / sum(weights), "score": score}
        for text, weight, score in zip(texts, weights, scores, strict=True)
    ]


def read_answers(path: str | Path) -> dict[str, str]:
    """Question id -> answer, from a file in the official form."""
    return _read(path, str, "texts")


def read_null_odds(path: str | Path) -> dict[str, float]:
    """Question id -> how sure the model is that there is no answer."""
    return _read(path, (int, float), "numbers")


def _read(path: str | Path, kind: Any, what: str) -> dict[str, Any]:
    content = read_json(path)
    if not all(isinstance(value, kind) for value in content.values()):
        raise DataError(f"{path}: expected an object of question ids and {what}")
    return content


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


def score_answers(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    *,
    null_limit: float = 1.0,
) -> dict[str, float]:
    """The official scores; a question without an entry in ``answers`` is not scored.

    Args:
        answers: question id -> answer, "" for none.
        null_odds: question id -> how sure the model is that there is no answer; None for none.
        null_limit: above it a question counts as answered with "".

    Returns:
        ``exact``, ``f1`` and ``total``; the same after ``HasAns_`` and ``NoAns_`` where there are
        such questions; with ``null_odds`` also the best of each over all limits and its limit:
        ``best_exact``, ``best_exact_thresh``, ``best_f1``, ``best_f1_thresh``.

    Raises:
        ValueError: no question is answered, or one that is has none of the null odds.
    """
    scored = [question for question in questions if question.id in answers]
    if not scored:
        raise ValueError(f"none of the {len(questions)} questions has an answer in the predictions")
    given_odds = dict.fromkeys(answers, 0.0) if null_odds is None else null_odds
    without = [question.id for question in scored if question.id not in given_odds]
    if without:
        raise ValueError(f"{len(without)} answered questions have no null odds, as {without[0]}")
    raw: dict[str, list[float]] = {"exact": [], "f1": []}
    for question in scored:
        answer = answers[question.id]
        golds = [text for text in question.answers if normalized(text)] or [""]
        raw["exact"].append(float(normalized(answer) in map(normalized, golds)))
        raw["f1"].append(max(f1_of(gold, answer) for gold in golds))
    answerable = np.array([bool(question.answers) for question in scored])
    odds = np.array([given_odds[question.id] for question in scored])
    scores = {
        name: np.where(odds > null_limit, ~answerable, values) for name, values in raw.items()
    }
    official = _averages(scores, np.ones_like(answerable))
    for prefix, chosen in (("HasAns", answerable), ("NoAns", ~answerable)):
        if chosen.any():
            official |= {f"{prefix}_{n}": v for n, v in _averages(scores, chosen).items()}
    if null_odds is not None:
        answered = np.array([bool(answers[question.id]) for question in scored])
        for name, values in raw.items():
            best, limit = _best_limit(values, odds, answerable, answered)
            official |= {f"best_{name}": best, f"best_{name}_thresh": limit}
    return official


def _averages(scores: Mapping[str, np.ndarray], chosen: np.ndarray) -> dict[str, float]:
    means = {name: 100.0 * float(values[chosen].mean()) for name, values in scores.items()}
    return {**means, "total": int(chosen.sum())}


def _best_limit(
    values: Sequence[float], odds: np.ndarray, answerable: np.ndarray, answered: np.ndarray
) -> tuple[float, float]:
    """The best average over all limits, and the limit, 0 where answering nothing is best.

    REF: below the smallest limit no question is answered; each further question, in the order of
    its odds, adds its score, or costs one where it has no answer and the model gave one.
    """
    order = np.argsort(odds, kind="stable")
    change = np.where(answerable, values, -answered.astype(float))[order]
    totals = (~answerable).sum() + np.concatenate([[0.0], np.cumsum(change)])
    best = totals.argmax()
    limit = float(odds[order[best - 1]]) if best else 0.0
    return 100.0 * float(totals[best]) / len(values), limit
