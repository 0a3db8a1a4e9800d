"""Which sentences are drawn: those of the command line, then the lines of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sot_paddle.data.errors import DataError
from sot_paddle.explain.image_choice import MAX_ROWS
from sot_paddle.reading import read_text


@dataclass(frozen=True)
class ChosenSentence:
    """One sentence or pair to explain.

    Attributes:
        texts: one or two.
        label: its class, "" when not known.
    """

    texts: tuple[str, ...]
    label: str = ""


def choose_sentences(
    texts: Sequence[Sequence[str]], file: str | None, labels: Sequence[str], num_texts: int | None
) -> list[ChosenSentence]:
    """Read what is to be drawn.

    Args:
        texts: sentences or pairs without label.
        file: UTF-8, a sentence or pair per line with TAB between the columns; a column more than
            the task has texts is a label and stands first. Empty lines are passed over.
        labels: class names.
        num_texts: texts of the task, None when not known.

    Returns:
        At least one.

    Raises:
        DataError: the file cannot be read, a line or argument has another number of texts, a
            label that the model does not have, or there are more than 64.
    """
    chosen = [_checked(ChosenSentence(tuple(each)), num_texts, "--text") for each in texts]
    if file is not None:
        for number, line in enumerate(_lines(file), 1):
            if line.strip():
                chosen.append(_columns(line.split("\t"), labels, num_texts, f"{file}:{number}"))
    if not chosen:
        raise DataError(f"{file}: expected a sentence per line, got none")
    if len(chosen) > MAX_ROWS:
        raise DataError(f"{len(chosen)} sentences, at most {MAX_ROWS} can be drawn: give fewer")
    return chosen


def _columns(
    columns: list[str], labels: Sequence[str], num_texts: int | None, where: str
) -> ChosenSentence:
    """A line of a file; where the task does not say how many texts it has, a label shows it."""
    known = columns[0] in labels
    labelled = len(columns) == num_texts + 1 if num_texts else known and len(columns) > 1
    if labelled and not known:
        raise DataError(
            f"{where}: the first of {len(columns)} columns is a label, expected one of "
            f"{', '.join(labels) or 'none (a score)'}, got {columns[0]!r}"
        )
    label, texts = (columns[0], columns[1:]) if labelled else ("", columns)
    return _checked(ChosenSentence(tuple(texts), label), num_texts, where)


def _checked(chosen: ChosenSentence, num_texts: int | None, where: str) -> ChosenSentence:
    count = len(chosen.texts)
    if count > 2 or (num_texts is not None and count != num_texts):
        wanted = {1: "one sentence", 2: "a pair of sentences"}.get(num_texts, "one or two")
        raise DataError(f"{where}: expected {wanted}, got {count} texts")
    return chosen


def _lines(file: str) -> list[str]:
    try:
        return read_text(file).splitlines()
    except ValueError as error:
        raise DataError(f"--sentences: {error}") from error
