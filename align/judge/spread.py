"""How far the moved runs of the reference lie from their centre, one tensor at a time.

Only distances and samples are kept: a run is freed before the next one. What is left of a tensor
when the runs are made, its `Spread`, is a few numbers, which a dump holds as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.judge.distance import MASK, PIECE, peak
from align.record.arrays import Arrays
from align.record.moved_run import sampled

FEW, RUNS = 2, 6
"""Moved runs that are made first, and at most."""
FALSE_ALARM = 1e-7
"""Probability with which a tensor of unchanged code fails, at most."""
KERNELS = 4.0

Spreads = Mapping[tuple[str, str], "Spread"]
"""(kind, name) -> what the moved runs say of it."""


def factor(directions: float) -> float:
    """How many times the root mean square distance of RUNS runs a distance may be.

    Args:
        directions: v, at least 1.
    """
    low = high = max(KERNELS**2, 1.0)
    while _exceeds(high, directions) > FALSE_ALARM:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _exceeds(middle, directions) > FALSE_ALARM else (low, middle)
    return max(KERNELS, high**0.5)


def _exceeds(ratio: float, directions: float) -> float:
    """Probability that an F-distributed ratio of v over RUNS v degrees of freedom is larger.

    It is the regularised incomplete beta function I_y(b, a), by its power series at y.
    """
    a, b = directions / 2.0, RUNS * directions / 2.0
    y = b / (b + a * ratio)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(b)
    term = total = math.exp(scale + b * math.log(y) + a * math.log1p(-y))
    count = 0
    while term > 1e-17 * total:
        term *= y * (a + b + count) / (b + 1.0 + count)
        total += term
        count += 1
    return total


ONE_DIRECTION = 29.53
"""`factor` of one direction, Student's t: what holds where nothing is known of the angles."""


@dataclass(frozen=True)
class Spread:
    """What the moved runs say of one tensor.

    Attributes:
        factor: how many times the root mean square distance is allowed.
        largest: root mean square of the runs' largest differences.
        rows: mean of their squared L2 distances, by row of the first axis.
    """

    factor: float
    largest: float
    rows: np.ndarray

    def size(self, norm: str) -> float:
        """Root mean square distance in the "max" or the "l2" norm."""
        return self.largest if norm == "max" else float(np.sqrt(self.rows.sum()))

    def allowed(self, norm: str) -> float:
        """The distance that rounding explains."""
        return self.factor * self.size(norm)

    def part(self, index: int, count: int) -> Spread:
        """One of so many equal parts of the first axis; of its own angles nothing is known."""
        rows = np.split(self.rows, count)[index]
        return Spread(max(self.factor, ONE_DIRECTION), self.largest, rows)


def joined(spreads: Sequence[Spread]) -> Spread:
    """Of tensors that are the pieces of one.

    The squared cosine between two errors of the whole is at most the largest of the pieces': the
    whole has at least as many directions as the piece with the fewest.
    """
    if len(spreads) == 1:
        return spreads[0]
    return Spread(
        max(one.factor for one in spreads),
        max(one.largest for one in spreads),
        np.concatenate([one.rows for one in spreads]),
    )


def stored(spreads: Spreads) -> Arrays:
    """The spreads as arrays for a file, by "kind/name"."""
    return {
        f"{kind}/{name}": np.concatenate([[one.factor, one.largest], one.rows])
        for (kind, name), one in spreads.items()
    }


def read(arrays: Mapping[str, np.ndarray]) -> dict[tuple[str, str], Spread]:
    """What `stored` wrote.

    Raises:
        ValueError: an array that `stored` does not write.
    """
    found = {}
    for title, array in arrays.items():
        kind, _, name = title.partition("/")
        if array.ndim != 1 or array.size < 3 or not (array >= 0).all():
            raise ValueError(f"noise of {title}: expected a factor, a distance and rows")
        found[kind, name] = Spread(float(array[0]), float(array[1]), array[2:])
    return found


@dataclass
class Errors:
    """The errors of the moved runs of one tensor, run by run."""

    largest: list[float] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    samples: list[np.ndarray] = field(default_factory=list)

    def add(self, moved: np.ndarray, centre: np.ndarray) -> None:
        """Take the numbers of one more run.

        Args:
            moved: (...) floating numbers.
            centre: (...) the same shape.
        """
        largest, rows = _distances(moved, centre)
        self.largest.append(largest)
        self.rows.append(rows)
        few = sampled(centre.size)
        a, b = (array.reshape(-1)[few].astype(np.float64) for array in (moved, centre))
        self.samples.append(apart(a, b))

    def spread(self) -> Spread:
        """What the runs say so far; the least factor as long as there are not all of them."""
        squares = np.square(self.largest)
        least = len(self.largest) < RUNS
        allowed = KERNELS if least else factor(self._directions())
        return Spread(allowed, float(np.sqrt(squares.mean())), np.mean(self.rows, axis=0))

    def _directions(self) -> float:
        """v; 1 where a run has no error at all in the sample, which says nothing of its angle."""
        errors = np.stack(self.samples)
        lengths = np.linalg.norm(errors, axis=1, keepdims=True)
        if not lengths.all():
            return 1.0
        cosines = (errors / lengths) @ (errors / lengths).T
        return 1.0 / float(np.mean(cosines[np.triu_indices(len(errors), 1)] ** 2))


def _distances(moved: np.ndarray, centre: np.ndarray) -> tuple[float, np.ndarray]:
    """Largest difference, and the squared L2 distance of each row; a scalar is one row."""
    a, b = (array.reshape(array.shape[0] if array.ndim else 1, -1) for array in (moved, centre))
    rows, largest = np.zeros(len(b)), 0.0
    step = max(1, PIECE // b.shape[1])
    for start in range(0, len(b), step):
        one, other = a[start : start + step], b[start : start + step]
        difference = np.abs(apart(one, other))
        largest = max(largest, float(difference.max()))
        rows[start : start + step] = np.einsum("ij,ij->i", difference, difference)
    return largest, rows


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b in float64; zeros for what the comparison itself refuses, or takes for a mask."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.asarray(np.subtract(a, b, dtype=np.float64))
    if np.isfinite(difference).all() and peak(b) <= MASK:
        return difference
    return np.where(np.isfinite(difference) & (np.abs(b) <= MASK), difference, 0.0)
