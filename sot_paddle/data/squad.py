"""SQuAD: the official file (1.1 or 2.0), rows of tokens, answers from scores, official scores.

Long contexts are cut into windows that overlap.

Shape legend: n rows, m tokens of all rows, T positions of a padded row.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.reading import dumps, read_json


@dataclass(frozen=True)
class Question:
    """A question about a paragraph."""

    id: str
    text: str
    context: str
    answers: tuple[str, ...] = ()  # texts of the gold answers, () where there is none
    starts: tuple[int, ...] = ()  # position in ``context`` of the first character of each answer


def read_questions(path: str | Path, *, labelled: bool = True) -> list[Question]:
    """Read the questions of a file, in its order, at least one.

    Args:
        path: JSON with ``data``, a list of articles with ``paragraphs``.
        labelled: whether a question without ``answers`` is refused; else it has none.

    Raises:
        ValueError: not such a file, an answer that does not stand in its context where it should,
            an impossible question with answers, or an id given twice; the place is named.
    """
    path = Path(path)
    questions: dict[str, Question] = {}
    for at, article in enumerate(_part(read_json(path), "data", list, str(path))):
        paragraphs = _part(article, "paragraphs", list, f"{path}, article {at}")
        for number, paragraph in enumerate(paragraphs):
            place = f"{path}, article {at}, paragraph {number}"
            context = _part(paragraph, "context", str, place)
            for entry in _part(paragraph, "qas", list, place):
                question = _question(entry, context, place, labelled)
                if question.id in questions:
                    raise ValueError(f"{path}: the question id {question.id!r} is given twice")
                questions[question.id] = question
    if not questions:
        raise ValueError(f"{path} holds no question")
    return list(questions.values())


def _question(entry: Any, context: str, place: str, labelled: bool) -> Question:
    name = _part(entry, "id", str, place)
    place = f"{place}, question {name}"
    answers = _part(entry, "answers", list, place) if labelled or "answers" in entry else []
    if answers and entry.get("is_impossible", False):
        raise ValueError(f"{place}: is_impossible, and has {len(answers)} answers")
    texts = tuple(_part(answer, "text", str, place) for answer in answers)
    starts = tuple(_part(answer, "answer_start", int, place) for answer in answers)
    for text, start in zip(texts, starts, strict=True):
        if start < 0 or not context.startswith(text, start):
            raise ValueError(
                f"{place}: the answer {text!r:.60} is not at {start} of its context (characters "
                f"from 0, line ends and all); it is first at {context.find(text)} (-1: nowhere)"
            )
    return Question(name, _part(entry, "question", str, place), context, texts, starts)


def _part(value: Any, key: str, kind: type, place: str) -> Any:
    part = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(part, kind) or isinstance(part, bool):
        raise ValueError(f"{place}: expected {key!r} to be a {kind.__name__}, got {part!r:.60}")
    return part


NO_ANSWER = (0, 0)
"""First and last token of an answer that is not there: the class token."""


@dataclass(frozen=True, eq=False)
class SpanFeatures:
    """Rows of a question and a window of its context: ``[CLS] question [SEP] window [SEP]``.

    The labels are spans (n, 2): first and last token of the first answer, `NO_ANSWER` where the
    window does not hold all of it.
    """

    tokens: TokenFeatures  # n rows
    questions: np.ndarray  # (n,) int64, position of each row's question
    characters: np.ndarray  # (m, 2) int32, which a token of the context covers, -1 for all others

    def __len__(self) -> int:
        return len(self.tokens)

    def characters_of(self, row: int) -> np.ndarray:
        """(S, 2) characters of one row's tokens."""
        return self.characters[self.tokens.offsets[row] : self.tokens.offsets[row + 1]]


def span_features(
    questions: Sequence[Question],
    tokenizer: SubwordTokenizer,
    *,
    max_length: int = 384,
    stride: int = 128,
    published_labels: bool = False,
) -> SpanFeatures:
    """Cut each context into windows that fit beside its question, a row each, in order.

    Args:
        stride: tokens of the context that a window shares with the one before.
        published_labels: QUIRK: BERTVision's labels, in which an answer that begins with the last
            token of a window begins at the last position of the padded row.

    Raises:
        ValueError: a question that leaves no room for more than ``stride`` tokens, or a language
            model whose rows begin with no token of their own.

    Source: C.4.
    """
    form = tokenizer.form
    if len(form.begin) != 1:
        raise ValueError("question answering needs a language model whose rows begin with a token")
    rows, boundaries, owners, spans, characters = [], [], [], [], []
    contexts = tokenizer.pieces([question.context for question in questions])
    asked = tokenizer.pieces([question.text for question in questions])
    for owner, question in enumerate(questions):
        (ids, pieces), (words, _) = contexts[owner], asked[owner]
        room = max_length - len(words) - form.special(2)
        if room <= stride:
            raise ValueError(
                f"question {question.id} has {len(words)} tokens: {max_length} leave {room} for "
                f"the context, expected more than the stride {stride}; shorten the question, or "
                "train with a larger --max_seq_length"
            )
        for start, stop in windows(len(ids), room, stride):
            row, boundary = tokenizer.pair(words, ids[start:stop])
            rows.append(row)
            boundaries.append(boundary)
            owners.append(owner)
            first = 1 + len(words) + len(form.between)  # of the context
            covered = np.full((len(row), 2), -1, np.int32)
            inside = covered[first : first + stop - start]
            inside[:] = np.reshape(pieces[start:stop], (-1, 2))
            characters.append(covered)
            last = max_length - 1 if published_labels else None
            spans.append(_span(question, inside, first, last))
    tokens = TokenFeatures.from_rows(rows, boundaries)
    return SpanFeatures(
        tokens.with_targets(range(len(rows)), spans, np.int64),
        np.asarray(owners, np.int64),
        np.concatenate(characters),
    )


def windows(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Start and end of overlapping windows that cover all tokens; one for no token at all."""
    spans = [(0, min(room, tokens))]
    while spans[-1][1] < tokens:
        start = spans[-1][0] + room - stride
        spans.append((start, min(start + room, tokens)))
    return spans


def _span(question: Question, covered: np.ndarray, place: int, last: int | None) -> tuple[int, int]:
    """First and last token of the first answer in a window that begins at ``place``."""
    if not question.answers or not len(covered):
        return NO_ANSWER
    start = question.starts[0]
    stop = start + len(question.answers[0])
    if covered[0, 0] > start or covered[-1, 1] < stop:
        return NO_ANSWER
    first = int(np.searchsorted(covered[:, 0], start, side="right")) - 1
    final = int(np.searchsorted(covered[:, 1], stop))
    if last is not None and first == len(covered) - 1:
        return last, place + final
    return place + first, place + final


NULL_SCORES = ("published", "smallest")


@dataclass(frozen=True)
class DecodingOptions:
    """How spans are chosen."""

    n_best: int = 20  # starts and ends of a row that are combined
    max_tokens: int = 30  # of the longest answer
    threshold: float = 0.0  # no answer where the null score is this much above the best answer's
    # over the rows of a question: QUIRK, the largest; "smallest" is what the original says it means
    null_score: str = "published"


@dataclass(frozen=True)
class Answer:
    """What a model says to a question."""

    text: str  # the answer, "" for none
    score: float  # sum of start and end score of the best span, 0 where there is none
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
    candidates: list[list[tuple[str, float]]] = [[] for _ in questions]
    nulls: list[list[float]] = [[] for _ in questions]
    for row, owner in enumerate(features.questions):
        nulls[owner].append(float(starts[row, 0]) + float(ends[row, 0]))
        context, characters = questions[owner].context, features.characters_of(row)
        candidates[owner] += _spans(context, characters, starts[row], ends[row], options)
    pick = max if options.null_score == "published" else min
    answers = {}
    for question, spans, scores in zip(questions, candidates, nulls, strict=True):
        text, score = max(spans, key=lambda span: span[1], default=("", 0.0))  # the first of equals
        null = pick(scores)
        answers[question.id] = Answer(text if null - score < options.threshold else "", score, null)
    return answers


def _spans(
    context: str,
    characters: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    options: DecodingOptions,
) -> list[tuple[str, float]]:
    """Text and score of the spans of one row between its best starts and its best ends."""
    first, last = (
        np.argsort(-scores, kind="stable")[: options.n_best] for scores in (starts, ends)
    )
    words = np.flatnonzero(characters[:, 0] >= 0)
    if not len(words):
        return []
    low, high = words[0], words[-1]
    first, last = (places[(places >= low) & (places <= high)] for places in (first, last))
    return [
        (
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
