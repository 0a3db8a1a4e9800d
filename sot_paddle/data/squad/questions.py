"""Questions of a file in the official format of SQuAD 1.1 or 2.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle.data.errors import DataError
from sot_paddle.reading import read_json, require_whole_characters


@dataclass(frozen=True)
class Question:
    """A question about a paragraph."""

    id: str
    text: str
    context: str
    answers: tuple[str, ...] = ()  # texts of the gold answers, () where there is none
    starts: tuple[int, ...] = ()  # position in ``context`` of the first character of each answer


def read_questions(path: str | Path, *, labelled: bool = True) -> list[Question]:
    """Read a file.

    Args:
        path: JSON with ``data``, a list of articles with ``paragraphs``.
        labelled: whether a question without ``answers`` is refused; else it has none.

    Returns:
        Every question in the file's order, at least one.

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
                    raise DataError(f"{path}: the question id {question.id!r} is given twice")
                questions[question.id] = question
    if not questions:
        raise DataError(f"{path} holds no question")
    return list(questions.values())


def _question(entry: Any, context: str, place: str, labelled: bool) -> Question:
    name = _part(entry, "id", str, place)
    place = f"{place}, question {name}"
    answers = _part(entry, "answers", list, place) if labelled or "answers" in entry else []
    if answers and entry.get("is_impossible", False):
        raise DataError(f"{place}: is_impossible, and has {len(answers)} answers")
    texts = tuple(_part(answer, "text", str, place) for answer in answers)
    starts = tuple(_part(answer, "answer_start", int, place) for answer in answers)
    for text, start in zip(texts, starts, strict=True):
        if start < 0 or not context.startswith(text, start):
            raise DataError(
                f"{place}: the answer {text!r:.60} is not at {start} of its context (characters "
                f"from 0, line ends and all); it is first at {context.find(text)} (-1: nowhere)"
            )
    return Question(name, _part(entry, "question", str, place), context, texts, starts)


def _part(value: Any, key: str, kind: type, place: str) -> Any:
    part = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(part, kind) or isinstance(part, bool):
        raise DataError(f"{place}: expected {key!r} to be a {kind.__name__}, got {part!r:.60}")
    if kind is str:
        require_whole_characters(part, f"{place}, {key!r}")
    return part
