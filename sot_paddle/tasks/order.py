"""The order in which the examples of a split are evaluated and trained on."""

from __future__ import annotations

import functools

import numpy as np

from sot_paddle import distributed
from sot_paddle.data.batching import EpochOrder
from sot_paddle.tasks.task import EpochBatches


class ShuffledSplit:
    """Examples in batches, shuffled for training: a :class:`.task.Split`, of whose examples a
    subclass knows what they are.

    Attributes:
        batch_size: examples of a forward pass in evaluation.
        indices: (M,) number of each example in its file, None where nothing is predicted.
        labels: (M,) class of each example where the outputs are classes, None where unknown.
        lengths: tokens of each example where batches are to be bucketed by them, else None.
        drop_last: leave a training batch out that is not full.
    """

    batch_size: int
    indices: np.ndarray | None
    labels: np.ndarray | None = None
    lengths: np.ndarray | None = None
    drop_last = False

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def batches(self) -> list[np.ndarray]:
        """Batches that cover the split once, sorted by length when padding is dynamic."""
        return self._order(self.batch_size, shuffle=False).batches()

    def order(self, batch_size: int, seed: int) -> EpochBatches:
        """The global batches of each epoch for batches of that size on each process.

        They are shuffled by (seed, epoch), and bucketed where batches have lengths.
        """
        size = batch_size * distributed.world_size()
        order = self._order(size, seed=seed, drop_last=self.drop_last)
        return functools.lru_cache(maxsize=2)(lambda epoch: order.at_epoch(epoch).batches())

    def _order(self, batch_size: int, **options: int) -> EpochOrder:
        return EpochOrder(n=len(self), batch_size=batch_size, lengths=self.lengths, **options)
