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

from collections.abc import Sequence

import numpy as np

from align.judge.spread import KERNELS, RUNS, apart
from align.record.moved_run import MovedRun

SIDES = {RUNS - 2: 1, RUNS - 1: -1}
"""Number of a moved run -> on which side of a kink it takes what is near: above or below."""


def next_run(made: Sequence[MovedRun]) -> MovedRun:
    """The moved run that a band makes after those that it has."""
    side = SIDES.get(len(made), 0)
    if not side:
        return MovedRun(len(made))
    met: dict[int, list[np.ndarray]] = {}
    for run in made:
        for at, sample in run.met.items():
            met.setdefault(at, []).append(sample)
    return MovedRun(len(made), side, {at: _reach(samples) for at, samples in met.items()})


def _reach(samples: Sequence[np.ndarray]) -> float:
    """How near one kink rounding decides; 0 where that cannot be told.

    Args:
        samples: (n,) arguments of each run, the same elements in every one.
    """
    if len(samples) < 2 or len({sample.shape for sample in samples}) > 1:
        return 0.0
    errors = apart(np.stack(samples), np.mean(samples, axis=0, dtype=np.float64))
    return KERNELS * float(np.sqrt(np.mean(errors**2) * len(samples) / (len(samples) - 1)))
