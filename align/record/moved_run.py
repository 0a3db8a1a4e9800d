"""A run of the reference with moved roundings: what is asked of it, and what it leaves of kinks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

_SAMPLE = 1024  # numbers of a tensor that are kept


@dataclass
class MovedRun:
    """One of the moved runs of a noise band.

    Attributes:
        number: from 0; it seeds the directions in which the roundings are moved.
        side: 1 or -1 where it takes what is near a kink (of a ReLU) as above or as below; 0 where
            it leaves it.
        reach: what is near, by the number of kinks passed before; nothing where it is not said.
        met: some arguments of every kink, by the same number, that a run of side 0 leaves.
        lower: whether the model computed in a lower precision in places.
    """

    number: int
    side: int = 0
    reach: Mapping[int, float] = field(default_factory=dict)
    met: dict[int, np.ndarray] = field(default_factory=dict)
    lower: bool = False


@functools.lru_cache(maxsize=4096)
def sampled(size: int) -> np.ndarray:
    """Which numbers of a tensor are kept: all of a small one, the same drawn ones of a large."""
    if size <= _SAMPLE:
        return np.arange(size)
    return np.random.default_rng(size).integers(0, size, _SAMPLE)
