"""The examples of a split in batches, shuffled for training, as Paddle's tensors.

Shape legend: M examples of a split.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle.io import DataLoader, Dataset

from sot_paddle import distributed
from sot_paddle.data.batches import EpochBatches, TokenFeatures, epoch_batches, pad_rows

Arrays = Mapping[str, np.ndarray]


class BatchLoader(DataLoader):
    """A Paddle DataLoader, for the Trainer of paddlenlp, whose batches are made one after another.

    PADDLE: the DataLoader itself (3.3.1) makes them in a thread, without processes too. When the
    data set raises there, the thread ends without a word to the one that waits for its batch, for
    ever. Here it is an exception like any other. No random generator is touched.

    PADDLE: nor by its workers (3.3.1). It forks them from the training process, whose threads may
    hold a lock of Paddle's allocator at that moment; a worker that then puts a batch into shared
    memory waits for that lock for ever (seen in one of three short test runs). And when a worker
    raises or dies, the main process only gets "SystemError: Blocking queue is killed".

    Args:
        make: maps the keys of a batch to its arrays.
        batches: a batch sampler: lists of keys.
        in_workers: makes the arrays of a pass in the place of ``make``; None for none.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Any]], Arrays],
        batches: Iterable[Sequence[Any]],
        in_workers: Callable[[Iterable[Sequence[Any]]], Iterator[Arrays]] | None = None,
    ) -> None:
        super().__init__(Dataset(), batch_sampler=batches, collate_fn=make)
        self._make = in_workers or partial(map, make)

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler.

        Raises:
            ValueError: a batch cannot be made, or a worker ended.
        """
        for arrays in self._make(self.batch_sampler):
            yield {name: paddle.to_tensor(array) for name, array in arrays.items()}


class ShuffledSplit:
    """Examples of one split in batches, shuffled for training.

    ``fingerprint`` is a hash of what they are: a resumed run must find the same training examples,
    and forgets scores of other examples.
    """

    fingerprint: str
    batch_size: int  # examples of a forward pass in evaluation
    indices: np.ndarray | None  # (M,) number of each in its file, None where nothing is predicted
    labels: np.ndarray | None = None  # (M,) classes, None where unknown
    lengths: np.ndarray | None = None  # tokens of each where batches are bucketed by them
    drop_last = False

    def __len__(self) -> int:
        raise NotImplementedError

    def make_batch(self, positions: Sequence[Any]) -> Mapping[str, np.ndarray]:
        """The arrays of one batch, by the names of the model's inputs, and ``labels``.

        Training examples are asked for by what :attr:`sot_paddle.tasks.task.Task.by_epoch` says.
        """
        raise NotImplementedError

    def load(self, batches: Iterable[Sequence[Any]]) -> DataLoader:
        """Each batch of `make_batch` when it is asked for."""
        return BatchLoader(self.make_batch, batches)

    @property
    def batches(self) -> list[np.ndarray]:
        """Batches that cover the split once, sorted by length when padding is dynamic."""
        return epoch_batches(len(self), self.batch_size, shuffle=False, lengths=self.lengths)

    def order(self, batch_size: int, seed: int) -> EpochBatches:
        """The global batches of each epoch for batches of that size on each process.

        They are shuffled by (seed, epoch), and bucketed where batches have lengths.
        """
        size = batch_size * distributed.world_size()
        options = {"seed": seed, "lengths": self.lengths, "drop_last": self.drop_last}

        @functools.lru_cache(maxsize=2)
        def batches(epoch: int) -> list[np.ndarray]:
            return epoch_batches(len(self), size, epoch=epoch, **options)

        return batches


class TokenSplit(ShuffledSplit):
    """Tokenized examples that are padded when a batch is made.

    ``padding`` are options of :func:`sot_paddle.data.batches.pad_rows`: ``pad``, ``max_length``,
    ``pad_id``. Where rows are padded to the longest of a batch, batches are bucketed by length.
    """

    def __init__(self, features: TokenFeatures, batch_size: int, **padding: Any) -> None:
        self.features, self.batch_size, self._padding = features, batch_size, padding
        self.indices, self.labels = features.indices, features.labels
        self.lengths = features.lengths if padding["pad"] == "longest" else None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def fingerprint(self) -> str:
        """Hash of tokens and labels."""
        return self.features.fingerprint

    def make_batch(self, positions: Sequence[int]) -> dict[str, np.ndarray]:
        """Padded ``input_ids``, ``token_type_ids``, ``attention_mask``, and ``labels``."""
        return pad_rows(self.features, positions, **self._padding)
