"""Names of BERTVision's HDF5 files: which file holds which dataset of which task and split.

Source: C.2 and C.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import get_task

DTYPES = ("float32", "float16")
"""In which hidden states are stored."""

SQUAD = "squad"
_TASKS: Mapping[str, str] = {"sst-2": "sst", "mrpc": "msr", "sts-b": "stsb", "qqp": "qqpairs"}
"""Our name of a GLUE task -> the original's, where it is another."""

_CLASSES: Mapping[str, tuple[str, ...]] = {
    "mnli": ("neutral", "entailment", "contradiction"),
    "qnli": ("not_entailment", "entailment"),
    "rte": ("not_entailment", "entailment"),
}
"""Order of the classes in the original's files, where it is not that of the text release."""


@dataclass(frozen=True)
class Dataset:
    """One dataset in a file of its own.

    Attributes:
        name: of the dataset in it.
        dtype: of one row, NumPy's name; "" for that of the hidden states.
    """

    file: str
    name: str
    dtype: str = ""


@dataclass(frozen=True)
class StoredSplit:
    """The files of one split.

    Attributes:
        states: hidden states (n, L, T, F).
        labels: one dataset (n,) of labels; for SQuAD the first and the last token of the answer.
        rows: number (n,) of each example in the data set.
        classes: names of the labels; () for scores and spans.
    """

    states: Dataset
    labels: tuple[Dataset, ...]
    rows: Dataset
    classes: tuple[str, ...] = ()

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """All of them, the hidden states last."""
        return (*self.labels, self.rows, self.states)

    def paths(self, folder: str | Path) -> list[Path]:
        """The files of the split in a folder, the hidden states last."""
        return [Path(folder) / dataset.file for dataset in self.datasets]


def stored_split(task: str, split: str) -> StoredSplit:
    """The files of a task's split.

    Args:
        task: a GLUE task, or ``squad``.
        split: ``train``, ``dev``; for MNLI ``dev_matched``, ``dev_mismatched``.

    Raises:
        DataError: an unknown task, or a split that the original does not store.
    """
    if task.lower() == SQUAD:
        return _squad(split)
    table = get_task(task)
    if split not in ("train", *table.dev_splits):
        raise DataError(
            f"{table.title}: no hidden states are stored of split {split!r}; expected one of: "
            f"{', '.join(('train', *table.dev_splits))}"
        )
    start = _TASKS.get(table.name, table.name) + ("" if split == "train" else f"_{split}")
    kind = "float32" if table.is_regression else "int64"
    return StoredSplit(
        states=Dataset(f"{start}_bert_embeds.h5", "embeds"),
        labels=(Dataset(f"{start}_labels.h5", "labels", kind),),
        rows=Dataset(f"{start}_idx.h5", "idx", "int64"),
        classes=_CLASSES.get(table.name, table.labels),
    )


def _squad(split: str) -> StoredSplit:
    if split not in ("train", "dev"):
        raise DataError(f"SQuAD has no split {split!r}; expected train or dev")
    start = f"squad_{split}"
    return StoredSplit(
        states=Dataset(f"{start}_embeds.h5", "embeds"),
        labels=(
            Dataset(f"{start}_start_labels.h5", "start_ids", "int64"),
            Dataset(f"{start}_end_labels.h5", "end_ids", "int64"),
        ),
        rows=Dataset(f"{start}_indices.h5", "indices", "int64"),
    )
