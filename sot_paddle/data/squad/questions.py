"""Questions of a file in the official format of SQuAD 1.1 or 2.0, and their rows of tokens.

Long contexts are cut into windows that overlap. Shape legend: n rows, m tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.reading import read_json


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

    Attributes:
        tokens: n rows; its labels are the spans (n, 2): first and last token of the first answer,
            `NO_ANSWER` where the window does not hold all of it.
        questions: (n,) int64, position of each row's question.
        characters: (m, 2) int32, for each token of the context the characters that it covers, -1
            for all other tokens.
    """

    tokens: TokenFeatures
    questions: np.ndarray
    characters: np.ndarray

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
