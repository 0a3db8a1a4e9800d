"""The micro-batches of a run: which examples, in which order, on which process.

The order is a pure function of (seed, epoch). It never comes from a random generator that lives
in the process: paddlenlp's Trainer draws it from NumPy's global generator when an epoch begins,
and therefore gives a resumed run the first epoch's order again.

Terms: a *global batch* is what all processes together consume in one forward pass, a
*micro-batch* is one process's share of it, an optimizer step consumes ``accumulation`` of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sot_paddle.data.batches import EpochBatches


@dataclass(frozen=True)
class Pace:
    """How optimizer steps, micro-batches and examples relate.

    QUIRK: as in the original, an epoch's last micro-batches that do not fill an optimizer step
    are carried over: their gradients are added to the first step of the next epoch.
    """

    batches: int  # micro-batches of an epoch
    accumulation: int  # micro-batches of an optimizer step, at most ``batches``
    rows: int = 0  # training examples, of all processes

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch."""
        return self.batches // self.accumulation

    def position_after(self, step: int) -> tuple[int, int]:
        """Where the data stand right after optimizer step ``step`` (counted from 1; 0: start).

        Returns:
            (epoch, index of the next micro-batch in it), both from 0; the index is the epoch's
            length when it is exhausted.
        """
        if step == 0:
            return 0, 0
        epoch, within = divmod(step - 1, self.steps)
        return epoch, (within + 1) * self.accumulation

    def carried_over(self, step: int) -> range:
        """Micro-batches of the epoch just finished that step ``step + 1`` still has to add."""
        if step == 0 or step % self.steps:
            return range(0)
        return range(self.position_after(step)[1], self.batches)

    def epochs_done(self, step: int) -> float:
        """Progress in epochs after a step, for logs."""
        epoch, batch = self.position_after(step)
        return epoch + batch / self.batches


class MicroBatches:
    """Batch sampler over one process's micro-batches, epoch after epoch.

    Each pass over the sampler is one epoch. The first pass begins at ``seek``'s position.

    Args:
        epochs: the global batches of an epoch.
        by_epoch: the data set is asked with (epoch, index), which data that are augmented need,
            instead of the index.
    """

    def __init__(
        self, epochs: EpochBatches, *, rank: int = 0, world: int = 1, by_epoch: bool = False
    ) -> None:
        self._epochs, self._rank, self._world = epochs, rank, world
        self._by_epoch = by_epoch
        self._next = (0, 0)
        self._length = len(epochs(0))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[Any]]:
        epoch, first = self._next
        self._next = (epoch + 1, 0)
        for batch in self._epochs(epoch)[first:]:
            yield self._keys(epoch, batch)

    def seek(self, epoch: int, batch: int) -> None:
        """Begin the next pass at this place."""
        self._next = (epoch, batch)

    def at(self, epoch: int, batch: int) -> list[Any]:
        """This process's share of one global batch, as the data set is asked for it."""
        return self._keys(epoch, self._epochs(epoch)[batch])

    def _keys(self, epoch: int, batch: Sequence[int]) -> list[Any]:
        """This process's contiguous share; never empty, see :meth:`weight`."""
        mine = self._part(batch)
        indices = map(int, mine if len(mine) else batch[:1])
        return [(epoch, index) if self._by_epoch else index for index in indices]

    def _part(self, batch: Sequence[int]) -> np.ndarray:
        return np.array_split(batch, self._world)[self._rank]

    def weight(self, epoch: int, batch: int) -> float:
        """Factor of this process's mean loss that makes the processes' mean the batch's mean.

        1 for equal shares. A process without a share computes on a borrowed example at weight 0,
        because every process must take part in the reductions.
        """
        whole = self._epochs(epoch)[batch]
        return len(self._part(whole)) * self._world / len(whole)
