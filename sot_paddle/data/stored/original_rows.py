"""Which rows BERTVision trains on, and in which order it numbers the classes.

Source: C.3.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.cache import tokenize_examples
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import read_split
from sot_paddle.data.glue_tasks import SplitFile, Task, get_task, standard_splits
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.subword import SubwordTokenizer

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

_MSR = standard_splits(
    train=(SplitFile("msr_paraphrase_train.txt"),), dev=(SplitFile("msr_paraphrase_test.txt"),)
)


def original_task(name: str, rows: str = "original") -> Task:
    """A GLUE task with the files (``all``: GLUE's own) and the order of classes of BERTVision.

    Raises:
        DataError: an unknown task or choice of rows.
    """
    if rows not in ROWS:
        raise DataError(f"rows: expected one of {', '.join(ROWS)}, got {rows!r}")
    task = dataclasses.replace(get_task(name), labels=stored_split(name, "train").classes)
    if task.name == "mrpc" and rows == "original":
        # QUIRK: the whole training corpus, and the labelled test set as development set
        return dataclasses.replace(task, splits=_MSR)
    return task


def original_features(
    folder: str | Path,
    name: str,
    split: str,
    tokenizer: SubwordTokenizer,
    rows: str = "original",
) -> TokenFeatures:
    """A split as BERTVision reads it, tokenized.

    Args:
        folder, name, split: see :func:`sot_paddle.data.glue.read_split`.
        tokenizer: with the fast tokenizer's rule for ties, as the original's.
        rows: ``original``: MRPC's two corpus files; CoLA without the first row of train and dev,
            which the original takes for a header. ``all``: GLUE's rows.

    Returns:
        The rows, numbered from 0; rows without labels keep the file's numbers.
    """
    task = original_task(name, rows)
    examples = read_split(folder, task, split)
    if task.name == "cola" and rows == "original":
        examples = examples[1:]  # QUIRK
    found = tokenize_examples(examples, task, tokenizer)
    if found.labels is None:
        return found
    return dataclasses.replace(found, indices=np.arange(len(found)))
