"""Batches as Paddle tensors, made in this process when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.io import DataLoader, Dataset


class BatchLoader(DataLoader):
    """A Paddle DataLoader, for the Trainer of paddlenlp, whose batches are made one after another.

    PADDLE: the DataLoader itself (3.3.1) makes them in a thread, without processes too. When the
    data set raises there, the thread ends without a word to the one that waits for its batch, for
    ever. Here it is an exception like any other. No random generator is touched.

    Args:
        make: the keys of a batch to its arrays.
        batches: batch sampler: lists of keys.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Any]], Mapping[str, np.ndarray]],
        batches: Iterable[Sequence[Any]],
    ) -> None:
        super().__init__(Dataset(), batch_sampler=batches, collate_fn=make)

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler."""
        for keys in self.batch_sampler:
            arrays = self.collate_fn(keys)
            yield {name: paddle.to_tensor(array) for name, array in arrays.items()}
