"""Which samples form which batch, as a value: the same for both frameworks and after a resume.

An :class:`EpochOrder` holds no state. Its batches are a function of its fields, so a run that
stopped at (epoch, step) goes on with ``order.at_epoch(epoch).batches(start_step=step)``, and W
processes that take ``order.shard(rank, W)`` see per step exactly the samples of one process that
runs ``order`` itself: process r takes the r-th contiguous part of every batch.

Shape legend: n samples, B rows of a batch, S tokens after padding, W processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.token_features import TokenFeatures, pad_rows

BUCKET_BATCHES = 50  # batches that are sorted by length together
REMAINDERS = ("trim", "pad")


@dataclass(frozen=True)
class EpochOrder:
    """The batches of one epoch.

    Without ``lengths`` the samples are shuffled (or kept in order) and cut into batches. With
    ``lengths`` they are bucketed: after the shuffle, chunks of 50 batches are sorted by length,
    longest first, cut, and the batches are shuffled; unshuffled, everything is sorted. An
    incomplete batch is always the last one.

    Attributes:
        n: number of samples.
        batch_size: samples per step over all processes together (W x the batch of each).
        seed: of the whole run.
        epoch: counted from 0; each epoch has its own order.
        shuffle: False keeps the samples' order (evaluation).
        lengths: n token counts for bucketing, None for none.
        drop_last: leave an incomplete last batch out.
        divisor: an incomplete last batch is brought to a multiple of this (W processes: W), so
            that every process has a share of the same size.
        remainder: how: ``"trim"`` leaves its last samples out of this epoch, ``"pad"`` repeats
            samples from the epoch's beginning (see ``num_padding``).

    Raises:
        DataError: impossible values.
    """

    n: int
    batch_size: int
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    lengths: Sequence[int] | np.ndarray | None = field(default=None, repr=False, compare=False)
    drop_last: bool = False
    divisor: int = 1
    remainder: str = "trim"

    def __post_init__(self) -> None:
        smallest = {"n": 1, "batch_size": 1, "seed": 0, "epoch": 0, "divisor": 1}
        for name, least in smallest.items():
            value = getattr(self, name)
            if isinstance(value, bool) or int(value) != value or value < least:
                raise DataError(f"{name}: expected a whole number from {least}, got {value!r}")
        if self.remainder not in REMAINDERS:
            raise DataError(f"remainder: expected trim or pad, got {self.remainder!r}")
        if self.batch_size % self.divisor:
            raise DataError(
                f"batch_size {self.batch_size} is not a multiple of divisor {self.divisor}"
            )
        if self.lengths is not None and len(self.lengths) != self.n:
            raise DataError(f"lengths: expected {self.n} of them, got {len(self.lengths)}")
        if not len(self):
            raise DataError(
                f"no batch: {self.n} samples leave none of batch_size {self.batch_size}; use a "
                "smaller batch or drop_last=False"
            )

    def at_epoch(self, epoch: int) -> EpochOrder:
        """The same order at another epoch."""
        return replace(self, epoch=epoch)

    @property
    def _last_size(self) -> int:
        """Samples of the incomplete last batch, 0 when there is none."""
        rest = self.n % self.batch_size
        if self.drop_last or not rest:
            return 0
        up = self.remainder == "pad"
        return (rest + (self.divisor - 1) * up) // self.divisor * self.divisor

    @property
    def num_padding(self) -> int:
        """How many samples at the end of the last batch are repetitions (``"pad"`` only)."""
        return max(0, self._last_size - self.n % self.batch_size) if self._last_size else 0

    def __len__(self) -> int:
        """Number of batches of the epoch."""
        return self.n // self.batch_size + (self._last_size > 0)

    def batches(self, start_step: int = 0) -> list[np.ndarray]:
        """The batches from ``start_step`` on, each (B,) int64 sample positions.

        Raises:
            DataError: ``start_step`` is not from 0 to the number of batches.
        """
        if not 0 <= start_step <= len(self):
            raise DataError(f"start_step: expected 0 to {len(self)}, got {start_step}")
        samples = self._samples()
        full = self.n // self.batch_size
        cut = full * self.batch_size
        batches = list(samples[:cut].reshape(full, self.batch_size))
        if self.lengths is not None and self.shuffle:
            batches = [batches[position] for position in self._generator(1).permutation(full)]
        if self._last_size:
            last = np.concatenate([samples[cut:], np.resize(samples, self.num_padding)])
            batches.append(last[: self._last_size])
        return batches[start_step:]

    def shard(self, rank: int, world_size: int) -> ShardedOrder:
        """The part of process ``rank`` of ``world_size``."""
        return ShardedOrder(self, rank, world_size)

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, self.epoch, stream]))

    def _samples(self) -> np.ndarray:
        """(n,) int64: every sample once."""
        samples = np.arange(self.n, dtype=np.int64)
        if self.shuffle:
            samples = self._generator(0).permutation(samples)
        if self.lengths is None:
            return samples
        chunk = self.batch_size * BUCKET_BATCHES if self.shuffle else self.n
        shortness = -np.asarray(self.lengths, dtype=np.int64)
        parts = [samples[start : start + chunk] for start in range(0, self.n, chunk)]
        return np.concatenate([part[np.argsort(shortness[part], kind="stable")] for part in parts])


@dataclass(frozen=True)
class ShardedOrder:
    """One process's share of an :class:`EpochOrder`; the same interface.

    Attributes:
        order: the order of all processes together.
        rank: this process, from 0.
        world_size: W; must divide ``order.batch_size`` and, unless the last batch is dropped
            or complete, ``order.divisor``.

    Raises:
        DataError: the shares would not have equal sizes, or there is no such rank.
    """

    order: EpochOrder
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise DataError(f"rank: expected 0 to {self.world_size - 1}, got {self.rank}")
        if self.order.batch_size % self.world_size or self.order._last_size % self.world_size:
            raise DataError(
                f"{self.world_size} processes cannot share batches of {self.order.batch_size} "
                f"with a last one of {self.order._last_size} evenly; make batch_size a multiple "
                f"of {self.world_size} and set divisor={self.world_size} or drop_last=True"
            )

    def at_epoch(self, epoch: int) -> ShardedOrder:
        """The same share at another epoch."""
        return replace(self, order=self.order.at_epoch(epoch))

    @property
    def batch_size(self) -> int:
        """Samples per step of this process."""
        return self.order.batch_size // self.world_size

    @property
    def epoch(self) -> int:
        """The epoch of the order."""
        return self.order.epoch

    def __len__(self) -> int:
        """Number of batches of the epoch, the same in every process."""
        return len(self.order)

    def batches(self, start_step: int = 0) -> list[np.ndarray]:
        """This process's part of every batch from ``start_step`` on."""
        return [
            batch.reshape(self.world_size, -1)[self.rank]
            for batch in self.order.batches(start_step)
        ]


def iterate_batches(
    features: TokenFeatures,
    order: EpochOrder | ShardedOrder,
    *,
    pad: str = "max_length",
    max_length: int | None = None,
    pad_id: int = 0,
    start_step: int = 0,
) -> Iterator[dict[str, np.ndarray]]:
    """Padded batches in the order's order, for either framework.

    Args:
        features: the tokenized samples.
        order: which samples form which batch.
        pad: ``"max_length"`` (the original) or ``"longest"`` of each batch.
        max_length: S for ``pad="max_length"``.
        pad_id: token id of padding.
        start_step: batches of the epoch to leave out at its beginning.

    Yields:
        ``input_ids``, ``token_type_ids``, ``attention_mask`` (B, S) int64 and, where there are
        labels, ``labels`` (B,) int64 or float32.

    Raises:
        DataError: the order is for another number of samples, or a padding is impossible.
    """
    count = order.n if isinstance(order, EpochOrder) else order.order.n
    if count != len(features):
        raise DataError(f"the order is for {count} samples, the features hold {len(features)}")
    for batch in order.batches(start_step):
        yield pad_rows(features, batch, pad=pad, max_length=max_length, pad_id=pad_id)
