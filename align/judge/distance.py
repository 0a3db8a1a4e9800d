"""How far apart two arrays are under a tolerance: pure NumPy, float64, no verdict and no text.

Legend: a = ours (Paddle), b = the reference (PyTorch), o = its float64 run (the oracle).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from align.record.tolerance import Tolerance

ZERO_RATIO = 1e-12  # a tensor below this part of zero_scale is zero in exact arithmetic
LOW_PRECISION = ("bfloat16",)  # ml_dtypes: kind V, but numbers
TINY = float(np.finfo(np.float64).tiny)
MASK = 1e30  # a value as large as this stands for minus infinity in a mask
CEILING = 2.0**-10
"""A tensor of which rounding decides about more than this part is ill-conditioned."""
PIECE = 2**17  # numbers looked at together: few enough for the cache, and threads seldom meet


@dataclass(frozen=True)
class Distance:
    """A measured distance.

    Args:
        position: of the worst element, counted in the flattened arrays.
        worst: the judged distance, in units of `scale`.
        bound: what `worst` may be at most.
        scale: what the absolute difference was divided by.
        max_abs: largest absolute difference.
        norm: "max" or "l2", the norm that was used.
        peer: distance of b from o in units of `scale`; None without an oracle.
        is_zero: the judge is zero in exact arithmetic, `scale` is the caller's zero_scale.
        finite: neither NaN nor an infinity was met; otherwise the rest says nothing.
    """

    position: int
    worst: float
    bound: float
    scale: float
    max_abs: float
    norm: str
    peer: float | None = None
    is_zero: bool = False
    finite: bool = True


def measure(
    a: np.ndarray,
    b: np.ndarray,
    o: np.ndarray | None,
    tolerance: Tolerance,
    zero_scale: float | None,
) -> Distance:
    """Measures a against b, or with kinds "oracle" and "band" both against o.

    Args:
        a: (...) ours.
        b: (...) the reference, of the same shape.
        o: (...) float64 oracle; None where b itself is the judge.
        tolerance: the rule.
        zero_scale: see `align.judge.comparator.compare_arrays`.

    Returns:
        Distance; of kind "band" with the bound of the plain run, as if no moved run had been made.
    """
    judge = b if o is None else o
    if tolerance.kind == "relative":
        return _relative(a, judge, tolerance)
    found = Gap.between(a, judge, None if o is None else b)
    at, largest = found.position, found.largest
    if tolerance.kind in ("exact", "absolute"):
        return Distance(at, largest, tolerance.value, 1.0, largest, "max", finite=found.finite)
    is_zero = zero_scale is not None and found.peak < ZERO_RATIO * zero_scale
    norm = "max" if is_zero else tolerance.norm
    scale = zero_scale if is_zero else found.size(norm)
    scale = 1.0 if scale == 0 else max(scale, TINY)
    bound, peer = tolerance.lowest_bound, None
    if found.peer is not None:
        peer = found.peer.apart(norm) / scale
        own = 0.0 if is_zero else (tolerance.factor or 0.0) * peer
        if tolerance.kind == "oracle" or own <= CEILING:
            bound = max(tolerance.bias + own, bound)
    worst = found.apart(norm) / scale
    return Distance(at, worst, bound, scale, largest, norm, peer, is_zero, found.finite)


@dataclass
class Gap:
    """How far apart two arrays are and how large the second one is, from one look at each.

    Attributes:
        largest: largest absolute difference, 0 for empty arrays.
        position: where it is, counted in the flattened arrays.
        peak: largest absolute value of the second array.
        finite: neither NaN nor an infinity was met; otherwise the rest says nothing.
        peer: the same of a third array and the second.
    """

    largest: float = 0.0
    position: int = 0
    peak: float = 0.0
    finite: bool = True
    peer: Gap | None = None
    _apart: float = 0.0
    _size: float = 0.0

    @classmethod
    def between(cls, a: np.ndarray, judge: np.ndarray, peer: np.ndarray | None = None) -> Gap:
        """Measure piece by piece: large arrays pass through the cache once, and none is made.

        Args:
            a: (...) numbers.
            judge: (...) the same shape.
            peer: (...) the same shape, None for none.
        """
        found = cls(peer=None if peer is None else cls())
        sides = [pieces(array) for array in (a, judge, peer) if array is not None]
        start = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for one, other, *third in zip(*sides, strict=True):
                found._add(one, other, start)
                found.peak = max(found.peak, peak(other))
                found._size += _squares(other)
                for piece in third:
                    found.peer._add(piece, other, start)
                start += one.size
        if found.peer is not None:
            found.finite &= found.peer.finite
        return found

    def apart(self, norm: str) -> float:
        """The "max" or the "l2" norm of the difference."""
        return self.largest if norm == "max" else math.sqrt(self._apart)

    def size(self, norm: str) -> float:
        """The same of the second array."""
        return self.peak if norm == "max" else math.sqrt(self._size)

    def _add(self, one: np.ndarray, other: np.ndarray, start: int) -> None:
        difference = _difference(one, other)
        most = float(difference.max())
        if not math.isfinite(most):
            self.finite = False
            difference = _defined(difference)
            most = float(difference.max())
        if most > self.largest:
            self.largest, self.position = most, start + int(difference.argmax())
        self._apart += _squares(difference)


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array in flat parts of about PIECE numbers; arrays of one shape are cut alike.

    Whole rows are cut, so that a transposed matrix is not copied as a whole.
    """
    rows = 0 if array.ndim < 2 else PIECE // max(1, array[0].size) if len(array) else 1
    if not rows:
        array, rows = np.ravel(array), PIECE
    return (array[start : start + rows].ravel() for start in range(0, len(array), rows))


def absolute_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| in float64; 0 exactly where a == b, whole numbers beyond 2**53 included.

    Args:
        a: (...) numbers, no NaN.
        b: (...) the same shape.

    Returns:
        (...) float64; equal infinities are 0 apart.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _defined(_difference(a, b))


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same with NaN where a side is NaN or both are the same infinity."""
    if LOW_PRECISION[0] in (a.dtype.name, b.dtype.name):
        a, b = a.astype(np.float64), b.astype(np.float64)
    difference = np.asarray(np.subtract(a, b, dtype=np.float64))
    np.abs(difference, out=difference)
    if a.dtype.kind in "iu":
        difference = np.where((difference == 0) & (a != b), 1.0, difference)
    return difference


def _defined(difference: np.ndarray) -> np.ndarray:
    undefined = np.isnan(difference)
    return np.where(undefined, 0.0, difference) if undefined.any() else difference


def _squares(piece: np.ndarray) -> float:
    """Sum of the squares in float64, infinite where it is too large.

    Not by a dot product: its library would start threads of its own in each of ours.
    """
    piece = piece.astype(np.float64, copy=False)
    return float(np.einsum("i,i->", piece, piece))


def peak(array: np.ndarray) -> float:
    """max|array| of (...) numbers, without a temporary array."""
    return max(abs(float(array.max())), abs(float(array.min())))


def exact_in_float32(array: np.ndarray) -> bool:
    """Whether float32 holds every number of an array; whole numbers are not looked at."""
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(piece, piece.astype(np.float32), equal_nan=True)
            for piece in pieces(array)
        )


def _relative(a: np.ndarray, judge: np.ndarray, tolerance: Tolerance) -> Distance:
    """Each element by its own size; where that is 0, only equality is within any bound."""
    difference = absolute_difference(a, judge)
    floor = (tolerance.floor or 0.0) * peak(judge)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(judge.astype(np.float64)), floor)
        elements = np.asarray(np.where(difference == 0, 0.0, difference / size))
    at = int(elements.argmax())
    finite = bool(np.isfinite(a).all() and np.isfinite(judge).all())
    worst, largest = float(elements.flat[at]), float(difference.max())
    return Distance(at, worst, tolerance.value, 1.0, largest, "max", finite=finite)
