"""Prediction files in the format that the GLUE server accepts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import Task, get_task, resolve_split


def prediction_path(destination: str | Path, task: str | Task, split: str = "test") -> Path:
    """Where the predictions of a test split go.

    Args:
        destination: a file name ending in ``.tsv``, or a folder, in which the official name is
            used (``RTE.tsv``, ``MNLI-m.tsv``, ...; ``predictions.tsv`` for one's own table).
        task: name or :class:`Task`.
        split: the predicted split; one that GLUE expects no file for is named
            ``TASK-split.tsv``.
    """
    task, destination = get_task(task), Path(destination)
    if destination.suffix == ".tsv" and not destination.is_dir():
        return destination
    name = resolve_split(task, split)
    return destination / task.prediction_files.get(name, f"{task.title}-{name}.tsv")


def write_predictions(
    destination: str | Path,
    task: str | Task,
    indices: Sequence[int] | np.ndarray,
    predictions: Sequence[int] | Sequence[float] | np.ndarray,
    split: str = "test",
) -> Path:
    """Write ``index<TAB>prediction`` rows atomically; the folder is made when it is missing.

    Classes are written as the task's label words (``entailment``), CoLA and the like as 0 and
    1, STS-B as a score clipped to [0, 5] with three decimals.

    Args:
        destination: see :func:`prediction_path`.
        task: name or :class:`Task`.
        indices: (N,) row numbers of the test file (``Example.index``), each once, any order.
        predictions: (N,) class indices, or scores for a regression task.
        split: the predicted split.

    Returns:
        The path written.

    Raises:
        DataError: nothing to write, unequal lengths, a repeated index, a class that does not
            exist, or a score that is not a finite number. Nothing is written then.
        OSError: the file cannot be written; an existing one is untouched.
    """
    task = get_task(task)
    path = prediction_path(destination, task, split)
    numbers, values = np.asarray(indices), np.asarray(predictions)
    if numbers.ndim != 1 or numbers.shape != values.shape or not len(numbers):
        raise DataError(
            f"{task.title} predictions: expected two equally long vectors with at least one "
            f"element, got shapes {numbers.shape} and {values.shape}"
        )
    if not np.issubdtype(numbers.dtype, np.integer):
        raise DataError(
            f"{task.title} predictions: expected integer row numbers, got {numbers.dtype}"
        )
    if len(np.unique(numbers)) < len(numbers):
        raise DataError(f"{task.title} predictions: expected every row number once, got one twice")
    cells = _scores(task, values) if task.is_regression else _classes(task, values)
    rows = [f"{number}\t{cell}" for number, cell in zip(numbers.tolist(), cells, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, ("index\tprediction\n" + "\n".join(rows) + "\n").encode())


def _classes(task: Task, values: np.ndarray) -> list[str]:
    count = len(task.labels)
    if not np.issubdtype(values.dtype, np.integer):
        raise DataError(
            f"{task.title} predictions: expected integer class indices, got {values.dtype}; "
            "take the argmax of the logits first"
        )
    if values.min() < 0 or values.max() >= count:
        bad = values[(values < 0) | (values >= count)][0]
        raise DataError(f"{task.title} predictions: expected classes 0 to {count - 1}, got {bad}")
    return [task.labels[value] for value in values]


def _scores(task: Task, values: np.ndarray) -> list[str]:
    scores = values.astype(np.float64)
    if not np.isfinite(scores).all():
        position = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise DataError(
            f"{task.title} predictions: expected finite scores, got {scores[position]} at row "
            f"{position}"
        )
    if task.score_range is not None:
        scores = scores.clip(*task.score_range)
    return [f"{score:.3f}" for score in scores]
