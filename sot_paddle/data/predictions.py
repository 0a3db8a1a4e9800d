"""Prediction files in the format that the GLUE server accepts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.data.glue_tasks import Task, get_task, resolve_split


def prediction_path(folder: str | Path, task: str | Task, split: str = "test") -> Path:
    """Where the predictions of a split go: under the official name (``RTE.tsv``, ``MNLI-m.tsv``).

    It is ``predictions.tsv`` for one's own table, ``TASK-split.tsv`` where GLUE expects no file.
    """
    task = get_task(task)
    name = resolve_split(task, split)
    return Path(folder) / task.prediction_files.get(name, f"{task.title}-{name}.tsv")


def write_predictions(
    folder: str | Path,
    task: str | Task,
    indices: Sequence[int] | np.ndarray,
    predictions: np.ndarray,
    split: str = "test",
) -> Path:
    """Write ``index<TAB>prediction`` rows atomically; the folder is made when it is missing.

    Classes are written as the task's label words (``entailment``), CoLA and the like as 0 and
    1, STS-B as a score clipped to [0, 5] with three decimals, an own table's score with all the
    digits of a float32.

    Args:
        folder, task, split: see :func:`prediction_path`.
        indices: (N,) row numbers of the test file (``Example.index``).
        predictions: (N,) class indices, or finite scores for a regression task.

    Returns:
        The path written.
    """
    task = get_task(task)
    if task.is_regression:
        scores = predictions.astype(np.float64)
        if task.score_range is None:  # of any size
            cells = [f"{score:.9g}" for score in scores]
        else:
            cells = [f"{score:.3f}" for score in scores.clip(*task.score_range)]
    else:
        cells = [task.labels[value] for value in predictions]
    rows = [f"{number}\t{cell}" for number, cell in zip(indices, cells, strict=True)]
    content = "index\tprediction\n" + "\n".join(rows) + "\n"
    return write_atomically(prediction_path(folder, task, split), content.encode())
