"""Questions of a file in the official format of SQuAD 1.1 or 2.0."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle.config import some
from sot_paddle.data.errors import DataError
from sot_paddle.reading import read_json, require_whole_characters

SHOWN = 10
"""Answers at most that a refusal names one by one."""


@dataclass(frozen=True)
class Question:
    """A question about a paragraph.

    Attributes:
        id: of the official file, unique.
        text: the question.
        context: the paragraph.
        answers: texts of the gold answers, () where there is none.
        starts: position in ``context`` of the first character of each answer.
    """

    id: str
    text: str
    context: str
    answers: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()


def read_questions(path: str | Path, *, labelled: bool = True) -> list[Question]:
    """Read a file.

    Args:
        path: JSON with ``data``, a list of articles with ``paragraphs``.
        labelled: whether a question without ``answers`` is refused; else it has none.

    Returns:
        Every question in the file's order, at least one.

    Raises:
        ValueError: not such a file, answers that do not stand in their context where they should,
            an impossible question with answers, or an id given twice; the place is named.
    """
    path = Path(path)
    content = read_json(path, object, strict=True)
    questions = list(_questions(path, content, labelled))
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise DataError(f"{path}: the question id {question.id!r} is given twice")
        seen.add(question.id)
    if not questions:
        raise DataError(f"{path} holds no question")
    misplaced = [line for question in questions for line in _misplaced_answers(question)]
    if misplaced:
        more = f"; and {len(misplaced) - SHOWN} more" if len(misplaced) > SHOWN else ""
        raise DataError(
            f"{path}: {len(misplaced)} answer(s) not at their answer_start (characters of the "
            f"context from 0, line ends and all): {'; '.join(misplaced[:SHOWN])}{more}"
        )
    return questions


def _misplaced_answers(question: Question) -> Iterator[str]:
    """What is wrong with each answer that does not stand in the context where it should."""
    for text, start in zip(question.answers, question.starts, strict=True):
        if start >= 0 and question.context[start : start + len(text)] == text:
            continue
        places = [match.start() for match in re.finditer(re.escape(text), question.context)]
        there = f"it is at {some(map(str, places))}" if places else "it is nowhere in it"
        yield (
            f"question {question.id}: the answer {text!r:.60} is not at {start} of its context, "
            f"{there}"
        )


def _questions(path: Path, content: Any, labelled: bool) -> Iterator[Question]:
    articles = _part(content, "data", list, str(path))
    for at, article in enumerate(articles):
        paragraphs = _part(article, "paragraphs", list, f"{path}, article {at}")
        for number, paragraph in enumerate(paragraphs):
            place = f"{path}, article {at}, paragraph {number}"
            context = _part(paragraph, "context", str, place)
            for asked in _part(paragraph, "qas", list, place):
                yield _question(asked, context, place, labelled)


def _question(asked: Any, context: str, place: str, labelled: bool) -> Question:
    name = _part(asked, "id", str, place)
    place = f"{place}, question {name}"
    given = _part(asked, "answers", list, place) if labelled or "answers" in asked else []
    if given and asked.get("is_impossible", False):
        raise DataError(f"{place}: is_impossible, and has {len(given)} answers")
    texts = tuple(_part(answer, "text", str, place) for answer in given)
    starts = tuple(_part(answer, "answer_start", int, place) for answer in given)
    return Question(name, _part(asked, "question", str, place), context, texts, starts)


def _part(value: Any, key: str, kind: type, place: str) -> Any:
    found = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise DataError(f"{place}: expected {key!r} to be a {kind.__name__}, got {found!r:.60}")
    if kind is str:
        require_whole_characters(found, f"{place}, {key!r}")
    return found
