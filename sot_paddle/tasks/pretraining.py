"""Pre-training of a language model: masked words, and the next sentence where it is asked for.

Shape legend: M rows, B rows of a batch, S tokens, P masked words of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle

from sot_paddle import distributed
from sot_paddle.data.batches import EpochBatches
from sot_paddle.data.pretraining.pair_files import draws_of, masked
from sot_paddle.data.splits import BatchLoader
from sot_paddle.tasks.losses import SUMS, pretraining_loss
from sot_paddle.tasks.task import Outputs, Predictions, Task

Arrays = dict[str, np.ndarray]


def even_batches(rows: int, batch_size: int) -> list[range]:
    """Rows 0, 1, 2, ... cut into batches; the last may be smaller."""
    return [range(start, min(start + batch_size, rows)) for start in range(0, rows, batch_size)]


class Instances:
    """Instances with masks that were drawn when they were made.

    Args:
        rows: `sot_paddle.data.pretraining.instance_files.InstanceRows`.
    """

    by_epoch = False

    def __init__(self, rows: Any) -> None:
        self._rows, self.fingerprint = rows, rows.fingerprint

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, epoch: int, position: int) -> Arrays:
        """``ids``, ``types``, ``mask`` (S,), ``positions``, ``words``, ``weights`` (P,), ``next``.

        ``next`` is a number, -1 where it is not asked.
        """
        record = self._rows.row(position)
        return {
            "ids": record["input_ids"],
            "types": record["segment_ids"],
            "mask": record["input_mask"],
            "positions": record["masked_lm_positions"],
            "words": record["masked_lm_ids"],
            "weights": record["masked_lm_weights"],
            "next": record["next_sentence_labels"][0],
        }


@dataclass(frozen=True)
class MaskedPairs:
    """Pairs of sentences whose words are masked anew in every epoch.

    Source: specs.md E.3.
    """

    rows: Any
    length: int  # S; longer rows lose their end, which may be the last [SEP]
    share: float
    seed: int
    mask_id: int
    pad_id: int
    special: tuple[int, ...]  # further ids that are never masked
    vocab_size: int  # words to draw a random one from

    by_epoch = True

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        """Hash of the pairs; the options of masking are in the run's identity."""
        return self.rows.fingerprint

    def row(self, epoch: int, position: int) -> Arrays:
        """As of `Instances`; a random word that is padding by chance is masked out."""
        ids = self.rows.row(position)[: self.length]
        padded = np.full(self.length, self.pad_id, np.int64)
        padded[: len(ids)] = ids
        draws = draws_of(self.seed, epoch, position, self.length, self.vocab_size)
        shown, chosen = masked(
            padded,
            draws,
            share=self.share,
            mask_id=self.mask_id,
            kept=(*self.special, self.pad_id),
        )
        positions = np.flatnonzero(chosen)
        return {
            "ids": shown,
            "types": np.zeros_like(shown),
            "mask": (shown != self.pad_id).astype(np.int64),
            "positions": positions,
            "words": padded[positions],
            "weights": np.ones_like(positions),
            "next": np.int64(-1),
        }


def collate(rows: Sequence[Arrays], *, judged: bool) -> Arrays:
    """One batch of B rows; ``judged`` hands the targets to the model, else to the loss."""
    places = max(1, *(len(row["positions"]) for row in rows))
    padded = {
        name: np.stack([_padded(row[name], places) for row in rows])
        for name in ("positions", "words", "weights")
    }
    following = [[row["next"]] for row in rows]
    targets = np.concatenate([padded["words"], padded["weights"], following], axis=1)
    return {
        "input_ids": np.stack([row["ids"] for row in rows]),
        "token_type_ids": np.stack([row["types"] for row in rows]),
        "attention_mask": np.stack([row["mask"] for row in rows]),
        "positions": padded["positions"],
        "targets" if judged else "labels": targets,
    }


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(length - len(values), np.int64)]).astype(np.int64)


RowSource = Instances | MaskedPairs


@dataclass(frozen=True)
class PretrainingSplit:
    """Rows of one split, ``judged`` if it is evaluated on; see :class:`.task.Split`."""

    source: RowSource
    batch_size: int
    judged: bool = False

    def __len__(self) -> int:
        return len(self.source)

    @property
    def fingerprint(self) -> str:
        """Hash of the rows."""
        return self.source.fingerprint

    @property
    def batches(self) -> Sequence[Sequence[int]]:
        """Batches that cover the split once."""
        return even_batches(len(self), self.batch_size)

    def load(self, batches: Iterable[Sequence[Any]]) -> BatchLoader:
        """Batches of the model's inputs, with ``labels`` in training."""
        return BatchLoader(self._batch, batches)

    def _batch(self, keys: Sequence[Any]) -> Arrays:
        """Rows by (epoch, position), or by position."""
        places = [key if isinstance(key, tuple) else (0, key) for key in keys]
        return collate([self.source.row(*place) for place in places], judged=self.judged)


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

    @property
    def by_epoch(self) -> bool:
        """Whether rows differ from epoch to epoch."""
        return self.train is not None and self.train.source.by_epoch

    def order(self, seed: int) -> EpochBatches:
        """The rows as they lie in their file, which was shuffled when it was made."""
        batches = even_batches(len(self.train), self.batch_size * distributed.world_size())
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
