"""A split of tokenized text, and the order in which it is trained on."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from sot_paddle import distributed
from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.paddle_dataset import FeatureDataset, PadCollator
from sot_paddle.data.token_features import TokenFeatures
from sot_paddle.tasks.task import EpochBatches


class ShuffledSplit:
    """Examples in batches, shuffled for training; a subclass knows what they are.

    Args:
        batch_size: examples of a forward pass in evaluation.

    Attributes:
        lengths: tokens of each example where batches are to be bucketed by them, else None.
    """

    lengths: np.ndarray | None = None

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def batches(self) -> list[np.ndarray]:
        """Batches that cover the split once, sorted by length when padding is dynamic."""
        return self._order(self._batch_size, shuffle=False).batches()

    def order(self, batch_size: int, seed: int) -> EpochBatches:
        """The global batches of each epoch: shuffled by (seed, epoch), bucketed when padding is.

        Args:
            batch_size: examples of each process and forward pass.
            seed: of the run.
        """
        order = self._order(batch_size * distributed.world_size(), seed=seed)
        return functools.lru_cache(maxsize=2)(lambda epoch: order.at_epoch(epoch).batches())

    def _order(self, batch_size: int, *, seed: int = 0, shuffle: bool = True) -> EpochOrder:
        return EpochOrder(
            n=len(self),
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            lengths=self.lengths,
        )


class TokenSplit(ShuffledSplit):
    """Tokenized examples that are padded when a batch is made; see :class:`~.task.Split`.

    Args:
        features: the examples.
        collate: pads them; where it pads to the longest row, batches are bucketed by length.
        batch_size: examples of a forward pass in evaluation.

    Attributes:
        features: the same.
    """

    def __init__(self, features: TokenFeatures, collate: PadCollator, batch_size: int) -> None:
        super().__init__(batch_size)
        self.features, self._collate = features, collate
        self.lengths = features.lengths if collate.pad == "longest" else None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def indices(self) -> np.ndarray:
        """(M,) number of each example in its file."""
        return self.features.indices

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of tokens and labels."""
        digest = hashlib.sha256()
        for name, array in sorted(self.features.arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    def load(self, batches: Iterable[Sequence[int]]) -> BatchLoader:
        """Padded batches of ``input_ids``, ``token_type_ids``, ``attention_mask``, ``labels``."""
        dataset = FeatureDataset(self.features)
        return BatchLoader(dataset, batch_sampler=batches, collate_fn=self._collate)
