"""Random draws made from given uniform numbers, so that two programs can draw the same.

Every draw takes the next numbers u of [0, 1) off one stream: ``between`` low + (high - low) u,
``whole`` floor(count u), ``chance`` u < p, ``beta`` and ``normal`` the quantile at u, ``order`` the
stable sorting order of its numbers. Who draws what in which order is said where it is drawn.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import betaincinv


class UniformDraws:
    """One stream of uniform numbers.

    Args:
        values: Numbers of [0, 1), in the order in which they are taken.
    """

    def __init__(self, values: Sequence[float] | np.ndarray) -> None:
        self._values = np.asarray(values, dtype=np.float64)
        self._taken = 0

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` uniform numbers.

        Raises:
            ValueError: The stream is too short.
        """
        first, self._taken = self._taken, self._taken + count
        if self._taken > len(self._values):
            raise ValueError(f"{self._taken} uniform numbers asked for, {len(self._values)} given")
        return self._values[first : self._taken]

    def unit(self) -> float:
        """A number of [0, 1)."""
        return float(self.take(1)[0])

    def between(self, low: float, high: float) -> float:
        """Uniform in [low, high)."""
        return low + (high - low) * self.unit()

    def whole(self, count: int) -> int:
        """One of 0 to count - 1."""
        return math.floor(count * self.unit())

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.unit() < probability

    def beta(self, alpha: float) -> float:
        """Of the Beta(alpha, alpha) distribution."""
        return float(betaincinv(alpha, alpha, self.unit()))

    def normal(self, shape: tuple[int, ...] = ()) -> torch.Tensor:
        """Standard normal numbers in float64, row by row."""
        values = torch.from_numpy(self.take(math.prod(shape)).copy())
        return torch.special.ndtri(values).reshape(shape)

    def order(self, count: int) -> list[int]:
        """A permutation of 0 to count - 1."""
        values = self.take(count)
        return sorted(range(count), key=lambda place: values[place])
