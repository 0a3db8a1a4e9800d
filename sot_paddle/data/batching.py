"""Which samples form which batch, as a value: the same for both frameworks and after a resume.

An :class:`EpochOrder` holds no state: its batches are a function of its fields.
:class:`sot_paddle.train.feeding.MicroBatches` goes on in the middle of them and takes a process's
share.

Shape legend: n samples, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sot_paddle.data.errors import DataError

BUCKET_BATCHES = 50  # batches that are sorted by length together


@dataclass(frozen=True)
class EpochOrder:
    """The batches of one epoch.

    Without ``lengths`` the samples are shuffled (or kept in order) and cut into batches. With
    ``lengths`` they are bucketed: after the shuffle, chunks of 50 batches are sorted by length,
    longest first, cut, and the batches are shuffled; unshuffled, everything is sorted. An
    incomplete batch is always the last one.

    Attributes:
        n: number of samples.
        batch_size: samples per step over all processes together.
        seed: of the whole run.
        epoch: counted from 0; each epoch has its own order.
        shuffle: False keeps the samples' order (evaluation).
        lengths: n token counts for bucketing, None for none.
        drop_last: leave an incomplete last batch out.

    Raises:
        DataError: no batch at all.
    """

    n: int
    batch_size: int
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    lengths: Sequence[int] | np.ndarray | None = field(default=None, repr=False, compare=False)
    drop_last: bool = False

    def __post_init__(self) -> None:
        if not len(self):
            raise DataError(
                f"no batch: {self.n} samples leave none of batch_size {self.batch_size}; use a "
                "smaller batch or drop_last=False"
            )

    def at_epoch(self, epoch: int) -> EpochOrder:
        """The same order at another epoch."""
        return replace(self, epoch=epoch)

    def __len__(self) -> int:
        full, rest = divmod(self.n, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def batches(self) -> list[np.ndarray]:
        """The batches, each (B,) int64 sample positions."""
        samples = self._samples()
        full = self.n // self.batch_size
        cut = full * self.batch_size
        batches = list(samples[:cut].reshape(full, self.batch_size))
        if self.lengths is not None and self.shuffle:
            batches = [batches[position] for position in self._generator(1).permutation(full)]
        if len(self) > full:
            batches.append(samples[cut:])
        return batches

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
