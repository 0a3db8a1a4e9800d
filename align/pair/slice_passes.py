"""One process's own passes on each slice of a batch, to tell cutting from communicating."""

from __future__ import annotations

from functools import partial

import numpy as np

from align.frameworks import on_paddle
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.record import batch_slices
from align.record.stored_arrays import Lazy, Store


class Slices:
    """What one process computes on each slice of the batch: it tells cutting from communicating.

    Args:
        pair: in training mode.
        processes: number of slices.
    """

    def __init__(self, pair: AnyPair, processes: int) -> None:
        self.gradients: list[Lazy] = []
        self.counted = batch_slices.counted(pair.plan, processes)
        model, store = pair.model, Store()
        for index in range(processes):
            plan = batch_slices.cut(pair.plan, processes, index)
            with runs.passed(on_paddle, model, plan, pair.dtype, pair.dtype) as one:
                self.gradients.append(store.keep(one.gradients))

    def weighted(self, shares_of: list[float]) -> Lazy:
        """The gradients of the slices added up with these factors."""

        def one(name: str) -> np.ndarray:
            pairs = zip(shares_of, self.gradients, strict=True)
            return sum(factor * held[name] for factor, held in pairs)

        names = [n for n in self.gradients[0] if all(n in held for held in self.gradients)]
        return Lazy({name: partial(one, name) for name in names})
