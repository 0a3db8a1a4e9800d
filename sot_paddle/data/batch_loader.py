"""Batches as Paddle tensors, made in this process when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import paddle
from paddle.io import DataLoader


class BatchLoader(DataLoader):
    """A Paddle DataLoader, for the Trainer of paddlenlp, whose batches are made one after another.

    PADDLE: the DataLoader itself (3.3.1) makes them in a thread, without processes too. When the
    data set raises there, the thread ends without a word to the one that waits for its batch, for
    ever. Here it is an exception like any other. No random generator is touched.
    """

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler."""
        return (self.make(keys) for keys in self.batch_sampler)

    def make(self, keys: Sequence[Any]) -> dict[str, paddle.Tensor]:
        """The batch of these keys."""
        batch = self.collate_fn([self.dataset[key] for key in keys])
        return {name: paddle.to_tensor(array) for name, array in batch.items()}
