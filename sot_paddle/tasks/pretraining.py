"""Pre-training of a language model: masked words, and the next sentence where it is asked for.

A row has the features of the original's records: ``input_ids``, ``segment_ids``, ``input_mask``
(S,), ``masked_lm_positions``, ``masked_lm_ids``, ``masked_lm_weights`` (P,), and
``next_sentence_labels`` (1,), -1 where it is not asked.

Shape legend: M rows, B rows of a batch, S tokens, P masked words of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle

from sot_paddle import distributed
from sot_paddle.data.batches import EpochBatches, epoch_batches
from sot_paddle.data.pretraining.prepared import StoredRows, draws_of, masked
from sot_paddle.data.splits import ShuffledSplit
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.tasks.losses import SUMS, pretraining_loss
from sot_paddle.tasks.task import Outputs, Predictions, Task

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class WordMasks:
    """How words of pairs of sentences are masked anew in every epoch.

    Source: specs.md E.3.
    """

    length: int  # S; longer rows lose their end, which may be the last [SEP]
    share: float
    seed: int
    tokenizer: SubwordTokenizer  # of words to draw a random one from

    def features(self, ids: np.ndarray, epoch: int, position: int) -> Arrays:
        """The features of a row; a random word that is padding by chance is masked out."""
        tokenizer, form, ids = self.tokenizer, self.tokenizer.form, ids[: self.length]
        padded = np.full(self.length, tokenizer.pad_id, np.int64)
        padded[: len(ids)] = ids
        draws = draws_of(self.seed, epoch, position, self.length, tokenizer.vocab_size)
        kept = {*form.begin, *form.between, *form.end, tokenizer.pad_id}
        shown, chosen = masked(
            padded, draws, share=self.share, mask_id=tokenizer.mask_id, kept=kept
        )
        positions = np.flatnonzero(chosen)
        return {
            "input_ids": shown,
            "segment_ids": np.zeros_like(shown),
            "input_mask": (shown != tokenizer.pad_id).astype(np.int64),
            "masked_lm_positions": positions,
            "masked_lm_ids": padded[positions],
            "masked_lm_weights": np.ones_like(positions),
            "next_sentence_labels": np.array([-1]),
        }


def collate(rows: Sequence[Arrays], *, judged: bool) -> Arrays:
    """One batch of B rows; ``judged`` hands the targets to the model, else to the loss."""
    stacked = {name: np.stack([row[name] for row in rows]) for name in _OF_TOKENS}
    places = max(1, *(len(row["masked_lm_positions"]) for row in rows))
    for name in _OF_WORDS:
        stacked[name] = np.zeros((len(rows), places), np.int64)
        for at, row in enumerate(rows):
            stacked[name][at, : len(row[name])] = row[name]
    positions, words, weights = (stacked[name] for name in _OF_WORDS)
    targets = np.concatenate([words, weights, stacked["next_sentence_labels"]], axis=1)
    return {
        "input_ids": stacked["input_ids"],
        "token_type_ids": stacked["segment_ids"],
        "attention_mask": stacked["input_mask"],
        "positions": positions,
        "targets" if judged else "labels": targets,
    }


_OF_TOKENS = ("input_ids", "segment_ids", "input_mask", "next_sentence_labels")
_OF_WORDS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


@dataclass(frozen=True)
class PretrainingSplit(ShuffledSplit):
    """Rows of one split, ``judged`` if it is evaluated on; in training by (epoch, position)."""

    rows: StoredRows
    masks: WordMasks | None  # of pairs; None: instances, whose masks were drawn when they were made
    batch_size: int
    judged: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """Hash of the rows; the options of masking are in the run's identity."""
        return self.rows.fingerprint

    def make_batch(self, keys: Sequence[Any]) -> Arrays:
        """The model's inputs, with ``labels`` in training."""
        rows = []
        for key in keys:
            epoch, position = key if isinstance(key, tuple) else (0, key)
            row = self.rows.row(position)
            rows.append(self.masks.features(row, epoch, position) if self.masks else row)
        return collate(rows, judged=self.judged)


@dataclass
class PretrainingTask(Task):
    """Pre-training, which predicts nothing."""

    batch_size: int
    every_place: bool = False  # see `pretraining_loss`
    train: PretrainingSplit | None = None
    dev: Mapping[str, PretrainingSplit] = field(default_factory=dict)

    title = "pre-training"
    unit = "rows"
    num_outputs = 0
    metric = "loss"
    maximise = False
    by_epoch = True

    def order(self, seed: int) -> EpochBatches:
        """The rows as they lie in their file, which was shuffled when it was made."""
        size = self.batch_size * distributed.world_size()
        batches = epoch_batches(len(self.train), size, shuffle=False)
        return lambda epoch: batches

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Sum of the losses of both tasks."""
        return pretraining_loss(outputs, labels, every_place=self.every_place)

    def score(self, split: str, predictions: Predictions) -> dict[str, float]:
        """Loss and accuracy of the masked words, and of the next sentence where it is judged."""
        sums = dict(zip(SUMS, predictions.outputs.astype(np.float64).sum(axis=0), strict=True))
        count = max(1.0, sums["words"])
        scores = {"loss": sums["words_loss"] / count, "accuracy": sums["words_right"] / count}
        if sums["next_loss"]:
            for name in ("next_loss", "next_right"):
                sums[name] /= len(predictions.indices)
            scores |= {"next_loss": sums["next_loss"], "next_accuracy": sums["next_right"]}
            scores["loss"] += sums["next_loss"]
        return scores
