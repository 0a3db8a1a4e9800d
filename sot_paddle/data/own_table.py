"""A task from a user's own TSV files, found by their column names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import split_paths
from sot_paddle.data.glue_tasks import PAIR, TASKS, Task, standard_splits
from sot_paddle.data.tsv import read_table

MAX_CLASSES = 1000  # more than this and the label column surely holds something else


def own_task(
    data_dir: str | Path, *, labels: Sequence[str] | None = None, regression: bool = False
) -> Task:
    """Describe the files ``train.tsv``, ``dev.tsv`` and ``test.tsv`` of a folder as a task.

    Each has a header with ``sentence``, or ``sentence1`` and ``sentence2``, and ``label`` (not
    in the test file, where it is not read); further columns are ignored, except that ``index``
    numbers the rows. Quoting is off, as in GLUE.

    Args:
        data_dir: the folder; its ``train.tsv`` decides columns and labels.
        labels: class names in class-index order; None takes those of ``train.tsv`` in order
            (numerically when all are whole numbers).
        regression: whether the label is a score.

    Returns:
        A :class:`Task` for :func:`~sot_paddle.data.glue.read_split`; its metrics are accuracy,
        or Pearson and Spearman correlation and their mean.

    Raises:
        DataError: no usable ``train.tsv``, no text column, fewer than two classes, or labels
            together with regression.
    """
    if labels is not None and regression:
        raise DataError("own table: expected labels or regression=True, got both")
    path = Path(data_dir) / "train.tsv"
    probe = _task(("sentence",), ("?",), regression=False)
    split_paths(data_dir, probe, "train")  # refuses a wrong folder
    table = read_table(path, required=("label",))
    if set(PAIR) <= set(table.columns):
        text = PAIR
    elif "sentence" in table.columns:
        text = ("sentence",)
    else:
        raise DataError(
            f"{path}, line 1: expected the column sentence, or sentence1 and sentence2; found "
            f"{', '.join(map(repr, table.columns))}"
        )
    if regression:
        return _task(text, (), regression=True)
    cells = {cells[table.columns["label"]] for _, cells in table.rows}
    chosen = tuple(labels) if labels is not None else _ordered(cells)
    if not 2 <= len(chosen) <= MAX_CLASSES or len(set(chosen)) < len(chosen):
        raise DataError(
            f"{path}: expected 2 to {MAX_CLASSES} different labels, found {len(chosen)}; use "
            "regression=True if the label is a score"
        )
    return _task(text, chosen, regression=False)


def _ordered(cells: set[str]) -> tuple[str, ...]:
    if all(cell.removeprefix("-").isdecimal() for cell in cells):
        return tuple(sorted(cells, key=lambda cell: (int(cell), cell)))
    return tuple(sorted(cells))


def _task(text: tuple[str, ...], labels: tuple[str, ...], *, regression: bool) -> Task:
    return Task(
        name="own",
        title="own table",
        text=text,
        label="label",
        labels=labels,
        metrics=TASKS["sts-b"].metrics if regression else ("acc",),
        splits=standard_splits(),
        prediction_files=MappingProxyType({"test": "predictions.tsv"}),
    )
