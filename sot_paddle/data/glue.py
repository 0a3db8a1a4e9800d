"""Reading GLUE's official folders, and a user's own TSV files, into examples.

Files are read as they are distributed: quoting off (the texts hold unbalanced quotes), byte-order
marks, CRLF and a missing final newline accepted, CoLA without a header, both layouts of MRPC. Every
refusal is one :class:`~sot_paddle.data.glue_tasks.DataError` that names file and line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.config import some
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import SplitFile, Task, get_task, resolve_split
from sot_paddle.data.tsv import Table, bad_row, decoded_lines, read_table

_LARGEST_SCORE = float(np.finfo(np.float32).max)
_INDEX_DIGITS = 19  # of the largest int64
MEMBER_ID_COLUMNS = ("#1 ID", "#2 ID")


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a task.

    Attributes:
        index: the file's own row number where it has one, else the position from 0.
        text_a: the sentence, or the first one of a pair.
        text_b: the second sentence of a pair, None for a single sentence.
        label: class index, score for regression, or None where labels are withheld.
    """

    index: int
    text_a: str
    text_b: str | None
    label: int | float | None


def available_splits(data_dir: str | Path, task: str | Task) -> tuple[str, ...]:
    """Names of the task's splits whose files are present in ``data_dir``, in the task's order."""
    task, folder = get_task(task), Path(data_dir)
    return tuple(
        split for split, files in task.splits.items() if any(_present(folder, f) for f in files)
    )


def split_paths(data_dir: str | Path, task: str | Task, split: str) -> tuple[Path, ...]:
    """Every file that :func:`read_split` reads for this split (two for MRPC's first layout).

    Raises:
        DataError: none of the files that may hold the split is there.
    """
    task = get_task(task)
    return tuple(Path(data_dir) / name for name in _locate(Path(data_dir), task, split).names)


def read_split(data_dir: str | Path, task: str | Task, split: str) -> list[Example]:
    """Read one split of a task.

    Args:
        data_dir: the task's own folder (``$GLUE_DIR/RTE``), as in the original command.
        task: a name of ``TASKS``, or a :class:`Task` (see
            :func:`sot_paddle.data.own_table.own_task`).
        split: ``train``, ``dev``, ``test``; MNLI also ``dev_matched``, ``dev_mismatched``,
            ``test_matched``, ``test_mismatched`` (``dev`` and ``test`` mean matched) and
            ``test_diagnostic`` (AX).

    Returns:
        The examples in the file's order, at least one.

    Raises:
        DataError: wrong folder, empty or truncated file, missing column, row with a wrong
            number of columns, unknown label, a test file's row number a second time. Rows of QQP
            with a wrong number of columns are skipped with one logged line instead, as the
            original skips them.

    Source: specs.md B.2; ``data/README.md``, "Reading them safely".
    """
    task, folder = get_task(task), Path(data_dir)
    file = _locate(folder, task, split)
    required = task.text + ((task.label,) if file.labelled else ())
    members = None
    if file.member_ids is not None:
        required += MEMBER_ID_COLUMNS
        members = _member_ids(folder / file.member_ids)
    table = read_table(
        folder / file.name,
        required=required,
        columns=file.columns,
        skip_malformed=task.skip_malformed,
    )
    rows = [row for row in table.rows if members is None or _kept(table, row[1], members, file)]
    if not rows:
        raise DataError(f"{table.path} holds no row of the split {split!r} of {task.title}")
    examples = [
        _example(table, task, file.labelled, number, cells, position)
        for position, (number, cells) in enumerate(rows)
    ]
    if not file.labelled:  # predictions go by the number
        _refuse_repeated(table.path, [number for number, _ in rows], examples)
    return examples


def _present(folder: Path, file: SplitFile) -> bool:
    return all((folder / name).is_file() for name in file.names)


def _locate(folder: Path, task: Task, split: str) -> SplitFile:
    """The first candidate of the split that is present; a helpful refusal when none is."""
    name = resolve_split(task, split)
    for file in task.splits[name]:
        if _present(folder, file):
            return file
    wanted = " or ".join(" with ".join(file.names) for file in task.splits[name])
    asked = f"{task.title} {name}: expected {wanted} in {folder}"
    if not folder.is_dir():
        kind = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DataError(f"{asked}, which {kind}; give the folder that holds the task's files")
    held = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    hint = f"; did you mean {folder / task.title}?" if f"{task.title}/" in held else ""
    raise DataError(f"{asked}, which holds {some(held) or 'nothing'}{hint}")


def _member_ids(path: Path) -> set[tuple[str, ...]]:
    """The id pairs of MRPC's development set; the file has no header."""
    pairs = set()
    for number, line in enumerate(decoded_lines(path)[0], start=1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise DataError(bad_row(path, number, list(MEMBER_ID_COLUMNS), cells, cut=False))
        pairs.add(tuple(cells))
    return pairs


def _kept(table: Table, cells: list[str], members: set[tuple[str, ...]], file: SplitFile) -> bool:
    first, second = (cells[table.columns[name]] for name in MEMBER_ID_COLUMNS)
    return ((first, second) in members) == file.members


def _example(
    table: Table, task: Task, labelled: bool, number: int, cells: list[str], position: int
) -> Example:
    texts = [cells[table.columns[name]] for name in task.text]
    index = position
    if task.index in table.columns:
        cell = cells[table.columns[task.index]]
        digits = cell.isascii() and cell.isdigit() and len(cell) <= _INDEX_DIGITS
        if not digits or int(cell) > np.iinfo(np.int64).max:
            raise DataError(
                f"{table.path}, line {number}: expected a row number in column {task.index}, "
                f"from 0 to 2**63 - 1, found {cell[:40]!r}"
            )
        index = int(cell)
    label = None
    if labelled:
        label = _label(task, cells[table.columns[task.label]], f"{table.path}, line {number}")
    return Example(index, texts[0], texts[1] if len(texts) == 2 else None, label)


def _refuse_repeated(path: Path, lines: Sequence[int], examples: Sequence[Example]) -> None:
    known: dict[int, int] = {}
    for line, example in zip(lines, examples, strict=True):
        first = known.setdefault(example.index, line)
        if first != line:
            raise DataError(
                f"{path}, line {line}: expected every row number once, found {example.index}, "
                f"which line {first} has"
            )


def _label(task: Task, cell: str, place: str) -> int | float:
    if not task.is_regression:
        if cell in task.labels:
            return task.labels.index(cell)
        expected = " or ".join(task.labels)
        raise DataError(f"{place}: expected the label {expected}, found {cell!r}")
    low, high = task.score_range or (-_LARGEST_SCORE, _LARGEST_SCORE)
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not low <= score <= high:
        raise DataError(f"{place}: expected a score from {low:g} to {high:g}, found {cell!r}")
    return score
