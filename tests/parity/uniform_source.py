"""Uniform numbers that both sides draw from, and our side's generator that takes them.

The product asks a NumPy generator for what it needs. Here it asks :class:`UniformGenerator`, which
makes every draw from the next uniform numbers of a stream; the reference gets the same numbers and
makes its draws itself. One function gives the numbers of every stream of a run.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from sot_paddle.data.image_dataset import STREAMS

LENGTH = 8192
"""Numbers of a stream: the noise of an erased image takes most."""


def uniform_numbers(stream: str, seed: int, epoch: int, index: int) -> np.ndarray:
    """Uniform numbers (LENGTH,) of one purpose at one place; the arguments are the product's."""
    return np.random.default_rng([STREAMS.index(stream), seed, epoch, index]).random(LENGTH)


class UniformGenerator:
    """What the product calls of ``numpy.random.Generator``, made from given uniform numbers.

    Args:
        values: numbers of [0, 1), taken in order.
    """

    def __init__(self, values: np.ndarray) -> None:
        self._values, self._taken = values, 0

    def _take(self, count: int) -> np.ndarray:
        first, self._taken = self._taken, self._taken + count
        if self._taken > len(self._values):
            raise ValueError(f"{self._taken} uniform numbers asked for, {len(self._values)} given")
        return self._values[first : self._taken]

    def random(self) -> float:
        """A number of [0, 1)."""
        return float(self._take(1)[0])

    def uniform(self, low: float, high: float) -> float:
        """A number of [low, high)."""
        return low + (high - low) * self.random()

    def integers(self, low: int, high: int | None = None) -> int:
        """A whole number from ``low`` to below ``high``; from 0 to below ``low`` without it."""
        low, high = (0, low) if high is None else (low, high)
        return low + int((high - low) * self.random())

    def standard_normal(self, size: tuple[int, ...] = (), dtype: type = np.float64):
        """Normal numbers: the quantiles of the uniform ones."""
        values = stats.norm.ppf(self._take(math.prod(size))).reshape(size).astype(dtype)
        return values if size else float(values)

    def beta(self, a: float, b: float) -> float:
        """The quantile of Beta(a, b)."""
        return float(stats.beta.ppf(self.random(), a, b))

    def permutation(self, count: int) -> np.ndarray:
        """The stable sorting order of ``count`` numbers."""
        return np.argsort(self._take(count), kind="stable")


def uniform_generator(stream: str, seed: int, epoch: int, index: int) -> UniformGenerator:
    """Takes the place of ``sot_paddle.data.image_dataset.generator``."""
    return UniformGenerator(uniform_numbers(stream, seed, epoch, index))
