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

from align.judge.distance import LOW_PRECISION, Distance, diagnose, diagnose_shape, measure, peak
from align.record.results import JUDGED_BY_ORACLE, Comparison, Tolerance

OURS, REFERENCE, ORACLE = "Paddle", "PyTorch", "float64 oracle"
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
    distance = measure(arrays[OURS], arrays[REFERENCE], arrays.get(ORACLE), tolerance, zero_scale)
    refusal = None if distance.finite else _finite(name, arrays, tolerance)
    if refusal is not None:
        return refusal
    return _judge(name, arrays, tolerance, distance)


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
    name: str, arrays: dict[str, np.ndarray], tolerance: Tolerance, distance: Distance
) -> Comparison:
    """Judges what was measured on arrays that may be compared."""
    a = arrays[OURS]
    judge = arrays.get(ORACLE, arrays[REFERENCE])
    where = np.unravel_index(distance.position, a.shape)
    where = tuple(int(i) for i in where)
    judged = Comparison(
        name=name,
        passed=False,
        worst=distance.worst,
        bound=distance.bound,
        scale=distance.scale,
        max_abs=distance.max_abs,
        position=where,
        ours=float(a[where]),
        reference=float(judge[where]),
        tolerance=tolerance,
        reason="not judged yet",
        peer=distance.peer,
        unit=_unit(distance, tolerance),
    )
    if tolerance.kind == "oracle" and distance.bound >= VACUOUS:
        reason = (
            f"PyTorch itself is {distance.peer:.2e} of the scale from its float64 run, so a bound "
            f"of {distance.bound:.2e} would prove nothing: choose better conditioned inputs, or "
            "give zero_scale if this tensor is zero in theory"
        )
        return dataclasses.replace(judged, reason=reason)
    judged = within(judged, distance.bound)
    if judged.passed:
        return judged
    unit = peak(judge) if tolerance.kind == "relative" else distance.scale
    return dataclasses.replace(judged, hint=diagnose(a, judge, distance.bound * unit))


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


def _unit(distance: Distance, tolerance: Tolerance) -> str:
    """See `Comparison.unit`."""
    if distance.is_zero:
        return "zero_scale"
    if tolerance.kind in ("scaled", *JUDGED_BY_ORACLE):
        return "L2 norm" if distance.norm == "l2" else "scale"
    return "element" if tolerance.kind == "relative" else ""


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
