"""Splits in batches, shuffled for training; and the split of tokenized text."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from sot_paddle import distributed
from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.token_features import PadCollator, TokenFeatures
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


class TokenSplit(ShuffledSplit):
    """Tokenized examples that are padded when a batch is made; see :class:`~.task.Split`.

    Where ``collate`` pads to the longest row, batches are bucketed by length.
    """

    def __init__(self, features: TokenFeatures, collate: PadCollator, batch_size: int) -> None:
        self.features, self._collate, self.batch_size = features, collate, batch_size
        self.indices, self.labels = features.indices, features.labels
        self.lengths = features.lengths if collate.pad == "longest" else None

    def __len__(self) -> int:
        return len(self.features)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of tokens and labels."""
        digest = hashlib.sha256()
        for name, array in sorted(self.features.arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array))
        return digest.hexdigest()[:32]

    def load(self, batches: Iterable[Sequence[int]]) -> BatchLoader:
        """Padded batches of ``input_ids``, ``token_type_ids``, ``attention_mask``, ``labels``."""
        return BatchLoader(functools.partial(self._collate, self.features), batches)
