"""A task from a user's own tables, found by their column names."""

from __future__ import annotations

from collections.abc import Collection, Set
from pathlib import Path

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import split_paths
from sot_paddle.data.glue_tasks import PAIR, TASKS, Task, standard_splits
from sot_paddle.data.tsv import read_table

MAX_CLASSES = 1000  # more than this and the label column surely holds something else
TEXTS = ("sentence", "text")
"""Names of a column with one text; the first that is there is taken."""
MISSING = ("nan", "NaN", "None", "<NA>", "NaT")
"""What Python and pandas write in the place of a missing label."""


def own_task(data_dir: str | Path, *, regression: bool = False) -> Task:
    """Describe the files ``train.tsv``, ``dev.tsv`` and ``test.tsv`` of a folder as a task.

    Each has a header with ``sentence`` (or ``text``), or ``sentence1`` and ``sentence2``, and
    ``label`` (not in the test file, where it is not read); further columns are ignored, except that
    ``index`` numbers the rows. Quoting is off, as in GLUE.

    Args:
        data_dir: the folder; its ``train.tsv`` decides columns and labels, whose order is that of
            the class indices (numerical when all are whole numbers).
        regression: whether the label is a score.

    Returns:
        A :class:`Task` for :func:`~sot_paddle.data.glue.read_split`; its metrics are accuracy,
        or Pearson and Spearman correlation and their mean.

    Raises:
        DataError: no usable ``train.tsv``, no text column, a row without a label, or fewer than
            two classes.
    """
    path = Path(data_dir) / "train.tsv"
    split_paths(data_dir, table_task(("sentence",)), "train")  # refuses a wrong folder
    table = read_table(path, required=("label",))
    text = text_columns(path, table.columns)
    if regression:
        return table_task(text)
    labels = {
        required_label(cells[table.columns["label"]], f"{path}, line {number}")
        for number, cells in table.rows
    }
    return table_task(text, class_names(path, labels))


def text_columns(path: Path, columns: Collection[str]) -> tuple[str, ...]:
    """The columns with the text or the two texts of a table that names none."""
    if set(PAIR) <= set(columns):
        return PAIR
    found = [name for name in TEXTS if name in columns]
    if not found:
        raise DataError(
            f"{path}, line 1: expected the column {' or '.join(TEXTS)}, or sentence1 and "
            f"sentence2; found {', '.join(map(repr, columns))}"
        )
    return (found[0],)


def required_label(cell: str, where: str) -> str:
    """The label of a row, as it is written; refuses one that is missing or has blanks around it."""
    if cell in MISSING or cell != cell.strip() or not cell:
        raise DataError(
            f"{where}: expected a label without blanks around it, found {cell!r}; label the row or "
            f"leave it out (pandas writes {', '.join(MISSING)} for a missing one)"
        )
    return cell


def class_names(path: Path, labels: Set[str]) -> tuple[str, ...]:
    """The classes in the order of their indices: numerically when all are whole numbers."""
    if not 2 <= len(labels) <= MAX_CLASSES:
        raise DataError(
            f"{path}: expected 2 to {MAX_CLASSES} different labels, found {len(labels)}; labels "
            "that are scores are for train_glue.py --regression"
        )
    if all(cell.removeprefix("-").isdecimal() for cell in labels):
        return tuple(sorted(labels, key=lambda cell: (int(cell), cell)))
    return tuple(sorted(labels))


def table_task(
    text: tuple[str, ...],
    labels: tuple[str, ...] = (),
    *,
    title: str = "own table",
    label: str = "label",
) -> Task:
    """A task beside GLUE's, of the columns of its text and label; without labels a regression."""
    return Task(
        name="own",
        title=title,
        text=text,
        label=label,
        labels=labels,
        metrics=("acc",) if labels else TASKS["sts-b"].metrics,
        splits=standard_splits(),
        prediction_files={"test": "predictions.tsv"},
    )
