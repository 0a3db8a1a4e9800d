"""The order of a run's samples, as the reference makes it."""

from __future__ import annotations

import numpy as np


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of a run's samples in an epoch: NumPy's PCG64 seeded with (seed, epoch, 0)."""
    return np.random.Generator(np.random.PCG64([seed, epoch, 0])).permutation(count)
