"""Classification of whole texts, which are tokenized and cut when a batch is made.

Shape legend: M examples, B rows of a batch.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sot_paddle.data.documents import LabelledRows, read_own, read_published
from sot_paddle.data.glue_tasks import OWN
from sot_paddle.data.splits import ShuffledSplit
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.glue import GlueTask


class DocumentSplit(ShuffledSplit):
    """Whole texts."""

    def __init__(
        self, rows: LabelledRows, tokenizer: SubwordTokenizer, padding: str, batch_size: int
    ) -> None:
        self._rows, self._tokenizer, self._padding = rows, tokenizer, padding
        self.batch_size, self.indices = batch_size, np.arange(len(rows.rows))
        self.labels = None if rows.labels is None else np.asarray(rows.labels)

    def __len__(self) -> int:
        return len(self._rows.rows)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the files and of the tokenizer with its options."""
        parts = (self._rows.fingerprint, self._tokenizer.fingerprint)
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]

    def make_batch(self, positions: Sequence[int]) -> dict[str, np.ndarray]:
        """Padded ``input_ids``, ``token_type_ids``, ``attention_mask``, and ``labels``."""
        texts = [self._rows.rows[position] for position in positions]
        columns = [list(column) for column in zip(*texts, strict=True)]
        features = self._tokenizer.tokenize(*columns)
        targets = self._rows.labels
        labels = None if targets is None else [targets[position] for position in positions]
        labelled = features.with_targets(positions, labels, np.int64)
        return self._tokenizer.padded(labelled, self._padding)


def load_documents(config: DocumentTrainConfig, tokenizer: SubwordTokenizer) -> GlueTask:
    """Index what the options ask for.

    Returns:
        The task. A published data set is predicted on its test split, which has labels and is the
        development split as well (D.2).

    Raises:
        ValueError: a needed file is missing or broken, or an option does not fit the data.
    """
    is_own = config.task_name == OWN
    test = "test" if is_own else "dev"
    asked = (("train", config.do_train), ("dev", config.do_eval), (test, config.do_predict))
    splits = list(dict.fromkeys(name for name, wanted in asked if wanted))
    if not splits:
        raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
    tokenizer = tokenizer.truncating(config.trunc_medium)
    folder = Path(config.data_dir)
    if is_own:
        table, rows = read_own(folder, splits)
    else:
        table, rows = read_published(config.task_name, folder, splits)
    documents = {
        name: DocumentSplit(split_rows, tokenizer, config.padding, config.per_gpu_eval_batch_size)
        for name, split_rows in rows.items()
    }
    return GlueTask(
        table,
        config.per_gpu_train_batch_size,
        train=documents.get("train"),
        dev={"dev": documents["dev"]} if config.do_eval else {},
        test={"test": documents[test]} if config.do_predict else {},
    )
