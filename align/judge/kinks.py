"""Kinks near which rounding decides: the moved runs of one band take both sides.

A gradient jumps where the argument of a ReLU passes zero. That an argument lies so near zero that
its rounding decides the side is no small Gaussian error but an event: all moved runs of a reference
may fall on one side, and the kernels of another processor on the other. So the runs of a band
decide together. All but the last two fall as they do, and leave samples of the arguments of every
kink. Of the last two, one takes every argument within KERNELS times the samples' standard deviation
for one above the kink, the other for one below. Each side is then in at least one of the runs, so
the root mean square of their distances is at least 1 / sqrt(RUNS) of the jump, and what the band
allows KERNELS / sqrt(RUNS) = 1.6 times the jump or more.

Two runs would be too few to learn from: where the whole error has one direction, as after some
steps of training, two may agree to a tenth of it by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from align.judge.spread import KERNELS, RUNS, apart

SIDES = {RUNS - 2: 1, RUNS - 1: -1}
"""Number of a moved run -> on which side of a kink it takes what is near: above or below."""


@dataclass
class Kinks:
    """What the runs of a band met, by how many kinks a run passes before."""

    _met: dict[int, list[np.ndarray]] = field(default_factory=dict)

    def meet(self, at: int, sample: np.ndarray) -> None:
        """Take some arguments of a kink in one of the runs that fall as they do.

        Args:
            at: kinks that the run passed before.
            sample: (n,) arguments, the same elements in every run.
        """
        self._met.setdefault(at, []).append(sample)

    def reach(self, at: int) -> float:
        """How near a kink rounding decides; 0 where nothing is known."""
        samples = self._met.get(at, [])
        if len(samples) < 2 or len({sample.shape for sample in samples}) > 1:
            return 0.0
        errors = apart(np.stack(samples), np.mean(samples, axis=0, dtype=np.float64))
        return KERNELS * float(np.sqrt(np.mean(errors**2) * len(samples) / (len(samples) - 1)))


@dataclass(frozen=True)
class Draw:
    """A moved run that is asked for.

    Attributes:
        number: from 0; it seeds the directions in which the roundings are moved.
        kinks: of its band.
    """

    number: int
    kinks: Kinks = field(default_factory=Kinks)
