"""Files of answers and their scores in per cent, by the official definition of SQuAD 2.0."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_decoding import Answer
from sot_paddle.reading import read_json
from sot_paddle.strict_json import dumps

ANSWERS, NULL_ODDS, CANDIDATES = "predictions.json", "null_odds.json", "nbest_predictions.json"
"""Question id -> answer; -> how far no answer is above the best span; -> the best spans."""


def write_answers(folder: str | Path, answers: Mapping[str, Answer]) -> Path:
    """Write the three files of answers by question id; returns the path of `ANSWERS`."""
    folder = Path(folder)
    write_atomically(folder / NULL_ODDS, _json({n: a.null_odds for n, a in answers.items()}))
    write_atomically(folder / CANDIDATES, _json({n: _best(a) for n, a in answers.items()}))
    return write_atomically(folder / ANSWERS, _json({n: a.text for n, a in answers.items()}))


def _best(answer: Answer) -> list[dict[str, Any]]:
    """The candidates with their shares of a softmax over them and no answer."""
    scores = [*(candidate.score for candidate in answer.candidates), answer.null_score]
    weights = [math.exp(score - max(scores)) for score in scores]
    texts = [*(candidate.text for candidate in answer.candidates), ""]
    return [
        {"text": text, "probability": weight / sum(weights), "score": score}
        for text, weight, score in zip(texts, weights, scores, strict=True)
    ]


def _json(content: Mapping[str, Any]) -> bytes:
    return dumps(content).encode("utf-8")


def read_answers(path: str | Path) -> dict[str, str]:
    """Question id -> answer, from a file in the official form."""
    return _read(path, str, "texts")


def read_null_odds(path: str | Path) -> dict[str, float]:
    """Question id -> how sure the model is that there is no answer."""
    return _read(path, (int, float), "numbers")


def _read(path: str | Path, kind: Any, what: str) -> dict[str, Any]:
    content = read_json(path, strict=True)
    if not all(isinstance(value, kind) for value in content.values()):
        raise DataError(f"{path}: expected an object of question ids and {what}")
    return content


Scores = dict[str, float]

_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(answer: str) -> str:
    """Lower case without punctuation, without a, an, the, and with single spaces."""
    plain = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(gold: str, answer: str) -> float:
    """1 where both are the same when normalized, else 0."""
    return float(normalized(gold) == normalized(answer))


def f1_of(gold: str, answer: str) -> float:
    """F1 of the words that both have; of empty answers 1 where both are empty, else 0."""
    gold_words, answer_words = normalized(gold).split(), normalized(answer).split()
    same = sum((Counter(gold_words) & Counter(answer_words)).values())
    if not same:
        return float(gold_words == answer_words)
    precision, recall = same / len(answer_words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def gold_answers(question: Question) -> list[str]:
    """The answers that count: those that are not empty when normalized, [""] where none is."""
    return [text for text in question.answers if normalized(text)] or [""]


def score_answers(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    *,
    null_limit: float = 1.0,
) -> Scores:
    """The official scores.

    Args:
        questions: with their gold answers; a question without an entry in ``answers`` is not
            scored, as officially.
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
    raw = {
        name: [
            max(measure(gold, answers[question.id]) for gold in gold_answers(question))
            for question in scored
        ]
        for name, measure in (("exact", exact_match), ("f1", f1_of))
    }
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


def _averages(scores: Mapping[str, np.ndarray], chosen: np.ndarray) -> Scores:
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
