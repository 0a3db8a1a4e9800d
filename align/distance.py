"""How far apart two arrays are under a tolerance: pure NumPy, float64, no verdict and no text.

Legend: a = ours (Paddle), b = the reference (PyTorch), o = its float64 run (the oracle).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from align.tolerance import Tolerance

ZERO_RATIO = 1e-12  # a tensor below this part of zero_scale is zero in exact arithmetic
LOW_PRECISION = ("bfloat16",)  # ml_dtypes: kind V, but numbers
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Distance:
    """A measured distance.

    Args:
        elements: (...) float64, the distance of each element, before the division by `scale`.
        worst: the judged distance, in units of `scale`.
        bound: what `worst` may be at most.
        scale: what the absolute difference was divided by.
        max_abs: largest absolute difference.
        norm: "max" or "l2", the norm that was used.
        peer: distance of b from o in units of `scale`; None without an oracle.
        is_zero: the judge is zero in exact arithmetic, `scale` is the caller's zero_scale.
    """

    elements: np.ndarray
    worst: float
    bound: float
    scale: float
    max_abs: float
    norm: str
    peer: float | None = None
    is_zero: bool = False


def measure(
    a: np.ndarray,
    b: np.ndarray,
    o: np.ndarray | None,
    tolerance: Tolerance,
    zero_scale: float | None,
) -> Distance:
    """Measures a against b, or with kind "oracle" both against o.

    Args:
        a: (...) ours, finite.
        b: (...) the reference, finite, of the same shape.
        o: (...) float64 oracle; None unless the kind is "oracle".
        tolerance: the rule.
        zero_scale: see `align.comparator.compare_arrays`.

    Returns:
        Distance.
    """
    judge = b if o is None else o
    difference = absolute_difference(a, judge)
    largest = float(difference.max())
    if tolerance.kind in ("exact", "absolute"):
        return Distance(difference, largest, tolerance.value, 1.0, largest, "max")
    if tolerance.kind == "relative":
        return _relative(difference, judge, tolerance)
    is_zero = zero_scale is not None and peak(judge) < ZERO_RATIO * zero_scale
    norm = "max" if is_zero else tolerance.norm
    scale = zero_scale if is_zero else norm_of(judge, norm)
    scale = 1.0 if scale == 0 else max(scale, TINY)
    bound, peer = tolerance.value, None
    if o is not None:
        floor = tolerance.lowest_bound
        peer = norm_of(absolute_difference(b, o), norm) / scale
        bound = floor if is_zero else max(tolerance.factor * peer, floor)
    worst = norm_of(difference, norm) / scale
    return Distance(difference, worst, bound, scale, largest, norm, peer, is_zero)


def absolute_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| in float64; 0 exactly where a == b, whole numbers beyond 2**53 included.

    Args:
        a: (...) numbers, no NaN.
        b: (...) the same shape.

    Returns:
        (...) float64; equal infinities are 0 apart.
    """
    if LOW_PRECISION[0] in (a.dtype.name, b.dtype.name):
        a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.asarray(np.abs(np.subtract(a, b, dtype=np.float64)))
    if a.dtype.kind in "iu":
        difference = np.where((difference == 0) & (a != b), 1.0, difference)
    undefined = np.isnan(difference)  # inf - inf
    return np.where(undefined, 0.0, difference) if undefined.any() else difference


def peak(array: np.ndarray) -> float:
    """max|array| of (...) numbers, without a temporary array."""
    return max(abs(float(array.max())), abs(float(array.min())))


def norm_of(array: np.ndarray, norm: str) -> float:
    """The "max" or the "l2" norm of (...) numbers, in float64."""
    if norm == "max":
        return peak(array)
    return float(np.linalg.norm(array.astype(np.float64).ravel()))


def _relative(difference: np.ndarray, judge: np.ndarray, tolerance: Tolerance) -> Distance:
    """Each element by its own size; where that is 0, only equality is within any bound."""
    floor = (tolerance.floor or 0.0) * peak(judge)
    size = np.maximum(np.abs(judge.astype(np.float64)), floor)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        elements = np.asarray(np.where(difference == 0, 0.0, difference / size))
    worst = float(elements.max())
    return Distance(elements, worst, tolerance.value, 1.0, float(difference.max()), "max")
