"""The comparator: two NumPy arrays and a tolerance in, one judged Comparison out.

It refuses what known tools let through: NaN, equal infinities, broadcasting, another dtype, a
missing or an extra name, an empty comparison, a mean that hides one element. Distances are taken in
float64 and are relative to a scale, so that `worst <= bound` reads the same for every tensor.

Legend: a = ours (Paddle), b = the reference (PyTorch).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from align.judge.distance import (
    CEILING,
    LOW_PRECISION,
    ZERO_RATIO,
    Gap,
    diagnose,
    diagnose_shape,
    peak,
    relative_gap,
)
from align.record.results import JUDGED_BY_ORACLE, Comparison, Tolerance

OURS, REFERENCE, ORACLE = "Paddle", "PyTorch", "float64 oracle"
TINY = float(np.finfo(np.float64).tiny)
LEAST_OF_FLOAT32 = float(np.finfo(np.float32).tiny)  # what is smaller is 0 for float32
VACUOUS = 0.5  # an oracle bound this wide would nearly admit a tensor of zeros (distance 1)
_NAMES = Tolerance("exact", 0.0, "every name must exist on both sides, and there must be one")


def compare_arrays(
    name: str,
    ours: Any,
    reference: Any,
    tolerance: Tolerance,
    *,
    oracle: Any = None,
    zero_scale: float | None = None,
) -> Comparison:
    """Judges one array against its reference.

    Args:
        ours: Paddle's array (or a Python number).
        reference: PyTorch's array: same shape, same dtype, not empty, finite.
        oracle: float64 array of the same shape; needed by kinds "oracle" and "band".
        zero_scale: size of a tensor that is surely not zero (say the model's largest gradient).
            Where the judge (the oracle, or for "scaled" the reference) lies below 1e-12 of it, the
            tensor is zero in exact arithmetic and its own scale is rounding noise: the largest
            difference is then judged against zero_scale, bound by the value (oracle: by the floor).
            Without it an all-zero reference of kind "scaled" is judged absolutely.

    Returns:
        Comparison: `passed`, or a `reason` in plain words, with the worst element and both values.

    Raises:
        ValueError: zero_scale is not a finite number above 0.

    Source: issue "The rails", section 5; specs.md D.5.
    """
    if zero_scale is not None and not 0 < zero_scale < math.inf:
        raise ValueError(f"zero_scale {zero_scale!r} of {name!r}: expected a finite number above 0")
    sides = {OURS: ours, REFERENCE: reference}
    if tolerance.kind in JUDGED_BY_ORACLE:
        sides[ORACLE] = oracle
    arrays: dict[str, np.ndarray] = {}
    for side, value in sides.items():
        array, reason = _read(value, side)
        if array is None:
            return Comparison.stated(name, tolerance, reason)
        arrays[side] = array
    refusal = _structure(name, arrays, tolerance)
    if refusal is not None:
        return refusal
    return _judge(name, arrays, tolerance, zero_scale)


def compare_mappings(
    ours: Mapping[str, Any],
    reference: Mapping[str, Any],
    tolerance: Tolerance | Callable[[str], Tolerance],
    *,
    oracle: Mapping[str, Any] | None = None,
    zero_scale: float | None = None,
) -> list[Comparison]:
    """Judges every name of two dicts, in execution order.

    Returns:
        One Comparison per name of either side; a single failed one when both sides are empty.
    """
    names = list(dict.fromkeys([*reference, *ours]))
    if not names:
        reason = "empty: neither side has anything to compare"
        return [Comparison.stated("(nothing)", _NAMES, reason)]
    comparisons = []
    for name in names:
        sides = {OURS: ours, REFERENCE: reference}
        absent = [side for side, arrays in sides.items() if name not in arrays]
        if absent:
            reason = f"missing on the {' and the '.join(absent)} side"
            comparisons.append(Comparison.stated(name, _NAMES, reason))
            continue
        rule = tolerance if isinstance(tolerance, Tolerance) else tolerance(name)
        a, b = ours[name], reference[name]
        judge = None if oracle is None else oracle.get(name)
        comparisons.append(compare_arrays(name, a, b, rule, oracle=judge, zero_scale=zero_scale))
    return comparisons


def _read(value: Any, side: str) -> tuple[np.ndarray | None, str]:
    """The array of one side, or None and the reason why it cannot be compared."""
    if value is None:
        return None, f"missing on the {side} side"
    if isinstance(value, np.ma.MaskedArray):
        return None, f"a masked array on the {side} side: masked elements would not be compared"
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return None, f"a {type(value).__name__} on the {side} side instead of a NumPy array"
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" and array.dtype.name not in LOW_PRECISION:
        return None, f"dtype {array.dtype} on the {side} side: only numbers can be compared"
    return array, ""


def _structure(name: str, arrays: dict[str, np.ndarray], tolerance: Tolerance) -> Comparison | None:
    """Refuses another shape (no broadcasting), an empty array, another dtype."""
    a, b = arrays[OURS], arrays[REFERENCE]
    for side, other in arrays.items():
        if other.shape != a.shape:
            reason = f"shape {a.shape} on the {OURS} side against {other.shape} on the {side} side"
            return Comparison.stated(name, tolerance, reason, hint=diagnose_shape(a, other))
    if a.size == 0:
        reason = f"zero elements (shape {a.shape}): nothing was compared"
        return Comparison.stated(name, tolerance, reason)
    if a.dtype.name != b.dtype.name:
        reason = f"dtype {a.dtype.name} on the {OURS} side against {b.dtype.name}"
        reason += f" on the {REFERENCE} side"
        return Comparison.stated(name, tolerance, reason)
    if ORACLE in arrays and arrays[ORACLE].dtype.name != "float64":
        reason = f"dtype {arrays[ORACLE].dtype.name} of the {ORACLE}: expected float64"
        return Comparison.stated(name, tolerance, reason)
    return None


def _finite(name: str, arrays: dict[str, np.ndarray], tolerance: Tolerance) -> Comparison | None:
    """Refuses NaN and infinities."""
    for side, array in arrays.items():
        good = np.isfinite(array)
        if good.all():
            continue
        where = np.unravel_index(int(np.argmin(good)), array.shape)
        where = tuple(int(i) for i in where)
        sides = [side, *(s for s in arrays if s != side and not np.isfinite(arrays[s][where]))]
        is_nan = bool(np.isnan(array[where]))
        reason = (
            f"{'NaN' if is_nan else 'infinity'} at {where} on the {' and the '.join(sides)} side "
            f"({int((~good).sum())} of {good.size} elements)"
        )
        a, b = float(arrays[OURS][where]), float(arrays[REFERENCE][where])
        worst = math.nan if is_nan else math.inf
        return Comparison.stated(
            name, tolerance, reason, worst, position=where, ours=a, reference=b
        )
    return None


def _judge(
    name: str, arrays: dict[str, np.ndarray], tolerance: Tolerance, zero_scale: float | None
) -> Comparison:
    """Measures ours against the judge (the oracle, which PyTorch is measured against, too)."""
    a, b, o = arrays[OURS], arrays[REFERENCE], arrays.get(ORACLE)
    judge = b if o is None else o
    bound, scale, unit, peer = tolerance.value, 1.0, "", None
    if tolerance.kind == "relative":
        gap, worst = relative_gap(a, judge, tolerance.floor or 0.0)
        unit = "element"
    else:
        gap = Gap.between(a, judge, None if o is None else b)
        worst = gap.largest
    refusal = None if gap.finite else _finite(name, arrays, tolerance)
    if refusal is not None:
        return refusal
    if tolerance.kind in ("scaled", *JUDGED_BY_ORACLE):
        is_zero = zero_scale is not None and gap.peak < ZERO_RATIO * zero_scale
        norm = "max" if is_zero else tolerance.norm
        unit = "zero_scale" if is_zero else "L2 norm" if norm == "l2" else "scale"
        scale = zero_scale if is_zero else gap.size(norm)
        scale = 1.0 if scale == 0 else max(scale, TINY if o is None else LEAST_OF_FLOAT32)
        bound = tolerance.lowest_bound
        if gap.peer is not None:
            peer = gap.peer.apart(norm) / scale
            peer_bound = 0.0 if is_zero else (tolerance.factor or 0.0) * peer
            if tolerance.kind == "oracle" or peer_bound <= CEILING:
                bound = max(tolerance.bias + peer_bound, bound)
        worst = gap.apart(norm) / scale
    where = tuple(int(i) for i in np.unravel_index(gap.position, a.shape))
    judged = Comparison(
        name=name,
        passed=False,
        worst=worst,
        bound=bound,
        scale=scale,
        max_abs=gap.largest,
        position=where,
        ours=float(a[where]),
        reference=float(judge[where]),
        tolerance=tolerance,
        reason="not judged yet",
        peer=peer,
        unit=unit,
    )
    if tolerance.kind == "oracle" and bound >= VACUOUS:
        reason = (
            f"PyTorch itself is {peer:.2e} of the scale from its float64 run, so a bound "
            f"of {bound:.2e} would prove nothing: choose better conditioned inputs, or "
            "give zero_scale if this tensor is zero in theory"
        )
        return dataclasses.replace(judged, reason=reason)
    judged = within(judged, bound)
    if judged.passed:
        return judged
    size = peak(judge) if tolerance.kind == "relative" else scale
    return dataclasses.replace(judged, hint=diagnose(a, judge, bound * size))


def within(measured: Comparison, bound: float, tolerance: Tolerance | None = None) -> Comparison:
    """A measured comparison with another bound: passed or failed, and then why.

    Args:
        tolerance: the rule that gives the bound, None for the one that is there.
    """
    rule = tolerance or measured.tolerance
    passed = measured.worst <= bound
    return dataclasses.replace(
        measured,
        passed=passed,
        bound=bound,
        tolerance=rule,
        reason="" if passed else _reason(measured, bound),
        hint="" if passed else measured.hint,
    )


_SHARE = {
    "scale": " of the scale",
    "L2 norm": " of the L2 norm",
    "zero_scale": " of zero_scale (this tensor is zero in exact arithmetic)",
    "element": " of the element's size",
    "": "",
}


def _reason(measured: Comparison, bound: float) -> str:
    """Why a measured comparison failed, with the worst element of both sides."""
    kind, judge = measured.tolerance.kind, measured.reference
    allowed = "nothing is" if kind == "exact" else f"{bound:.2e} is"
    against = f"{REFERENCE}'s" if measured.peer is None else f"the {ORACLE}'s"
    size = f"differs by {measured.worst:.2e}{_SHARE[measured.unit]}"
    if kind == "relative" and judge == 0:
        size = "is not 0 where the reference is"
    where = f"worst at {measured.position}: {measured.ours:.9g} against {against} {judge:.9g}"
    return f"{size}, {allowed} allowed; {where}"
