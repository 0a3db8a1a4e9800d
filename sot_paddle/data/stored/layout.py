"""BERTVision's HDF5 files by task and split, the rows it trains on, the order of its classes.

Source: C.2 and C.3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.glue import read_split, tokenize_examples
from sot_paddle.data.glue_tasks import SPLITS, Task, get_task
from sot_paddle.data.subword import SubwordTokenizer

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
    """One dataset in a file of its own."""

    file: str
    name: str
    dtype: str = ""  # of one row, NumPy's name; "" for that of the hidden states


@dataclass(frozen=True)
class StoredSplit:
    """The files of one split."""

    states: Dataset  # hidden states (n, L, T, F)
    labels: tuple[Dataset, ...]  # (n,) labels; for SQuAD first and last token of the answer
    rows: Dataset  # number (n,) of each example in the data set
    classes: tuple[str, ...] = ()  # names of the labels; () for scores and spans

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """All of them, the hidden states last."""
        return (*self.labels, self.rows, self.states)

    def paths(self, folder: str | Path) -> list[Path]:
        """The files of the split in a folder, the hidden states last."""
        return [Path(folder) / dataset.file for dataset in self.datasets]


def stored_split(task: str, split: str) -> StoredSplit:
    """The files of a task's split: ``train``, ``dev``; MNLI ``dev_matched``, ``dev_mismatched``.

    Raises:
        ValueError: an unknown task, or a split that the original does not store.
    """
    if task.lower() == SQUAD:
        if split not in ("train", "dev"):
            raise ValueError(f"SQuAD has no split {split!r}; expected train or dev")
        start = f"squad_{split}"
        labels = (("start_labels", "start_ids"), ("end_labels", "end_ids"))
        return StoredSplit(
            states=Dataset(f"{start}_embeds.h5", "embeds"),
            labels=tuple(Dataset(f"{start}_{file}.h5", name, "int64") for file, name in labels),
            rows=Dataset(f"{start}_indices.h5", "indices", "int64"),
        )
    table = get_task(task)
    if split not in ("train", *table.dev_splits):
        raise ValueError(
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


ROWS = ("original", "all")
LENGTHS = {
    "cola": 64,
    "sst-2": 66,
    "mrpc": 86,
    "sts-b": 77,
    "qqp": 84,
    "mnli": 114,
    "qnli": 121,
    "rte": 219,
}
"""Tokens of a row (``--max-seq-length``) by task."""


def original_task(name: str, rows: str = "original") -> Task:
    """A GLUE task with the files (``all``: GLUE's own) and the order of classes of BERTVision."""
    task = dataclasses.replace(get_task(name), labels=stored_split(name, "train").classes)
    if task.name == "mrpc" and rows == "original":
        # QUIRK: the whole training corpus, and the labelled test set as development set
        files = {"train": "msr_paraphrase_train.txt", "dev": "msr_paraphrase_test.txt"}
        return dataclasses.replace(task, splits=SPLITS | files)
    return task


def original_features(
    folder: str | Path, name: str, split: str, tokenizer: SubwordTokenizer, rows: str = "original"
) -> TokenFeatures:
    """A split (see :func:`sot_paddle.data.glue.read_split`) as BERTVision reads it, tokenized.

    Rows are numbered from 0; those without labels keep the file's numbers.

    Args:
        tokenizer: with the fast tokenizer's rule for ties, as the original's.
        rows: ``original``: MRPC's two corpus files; CoLA without the first row of train and dev,
            which the original takes for a header. ``all``: GLUE's rows.
    """
    task = original_task(name, rows)
    examples = read_split(folder, task, split)
    if task.name == "cola" and rows == "original":
        examples = examples[1:]  # QUIRK
    features = tokenize_examples(examples, task, tokenizer)
    if features.labels is None:
        return features
    return dataclasses.replace(features, indices=np.arange(len(features)))
