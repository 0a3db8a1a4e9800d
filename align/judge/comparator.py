"""The comparator: two NumPy arrays and a tolerance in, one judged Comparison out.

It refuses what known tools let through: NaN, equal infinities, broadcasting, another dtype, a
missing or an extra name, an empty array, a mean that hides one element. Distances are taken in
float64 and are relative to a scale, so that `worst <= bound` reads the same for every tensor.

Of a failed one it says what the difference looks like. A signature is a hypothesis about how ours
came from the reference; it is named only when it explains the difference: what remains is within
the tolerance or at most 1 % of the difference.

Legend: a = ours (Paddle), b = the reference (PyTorch), o = its float64 run (the oracle).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from align.record.results import JUDGED_BY_ORACLE, Comparison, Tolerance

ZERO_RATIO = 1e-12  # a tensor below this part of zero_scale is zero in exact arithmetic
LOW_PRECISION = ("bfloat16",)  # ml_dtypes: kind V, but numbers
MASK = 1e30  # a value as large as this stands for minus infinity in a mask
CEILING = 2.0**-10
"""A tensor of which rounding decides about more than this part is ill-conditioned."""
PIECE = 2**17  # numbers looked at together: few enough for the cache, and threads seldom meet
OURS, REFERENCE, ORACLE = "Paddle", "PyTorch", "float64 oracle"
TINY = float(np.finfo(np.float64).tiny)
LEAST_OF_FLOAT32 = float(np.finfo(np.float32).tiny)  # what is smaller is 0 for float32
VACUOUS = 0.5  # an oracle bound this wide would nearly admit a tensor of zeros (distance 1)
LIMIT = 4_000_000  # elements; sorting more is no longer cheap
EXPLAINED = 0.01  # part of the difference that may remain
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
        oracle: array of the same shape, judged in float64; needed by kinds "oracle" and "band".
        zero_scale: size of a tensor that is surely not zero (say the model's largest gradient).
            Where the judge (the oracle, or for "scaled" the reference) lies below 1e-12 of it, the
            tensor is zero in exact arithmetic and its own scale is rounding noise: the largest
            difference is then judged against zero_scale, bound by the value. Without it an
            all-zero reference of kind "scaled" is judged absolutely.

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
        arrays[side] = array.astype(np.float64, copy=False) if side == ORACLE else array
    reason, hint = _structure(arrays)
    if reason:
        return Comparison.stated(name, tolerance, reason, hint=hint)
    return _judge(name, arrays, tolerance, zero_scale)


def compare_mappings(
    ours: Mapping[str, Any],
    reference: Mapping[str, Any],
    tolerance: Tolerance | Callable[[str], Tolerance],
    *,
    oracle: Mapping[str, Any] | None = None,
    zero_scale: float | None = None,
) -> Iterator[Comparison]:
    """Judges every name of either side in execution order, one tensor at a time.

    What is empty on both sides is left out.
    """
    for name in dict.fromkeys([*reference, *ours]):
        if name not in ours or name not in reference:
            side = REFERENCE if name in ours else OURS
            yield Comparison.stated(name, _NAMES, f"missing on the {side} side")
            continue
        a, b = ours[name], reference[name]
        if np.size(a) or np.size(b):
            rule = tolerance if isinstance(tolerance, Tolerance) else tolerance(name)
            o = None if oracle is None else oracle.get(name)
            yield compare_arrays(name, a, b, rule, oracle=o, zero_scale=zero_scale)


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


def _structure(arrays: dict[str, np.ndarray]) -> tuple[str, str]:
    """Why arrays cannot be compared, and a hint: no broadcasting, not empty, one dtype; "" else."""
    a, b = arrays[OURS], arrays[REFERENCE]
    for side, other in arrays.items():
        if other.shape != a.shape:
            shapes = f"shape {a.shape} on the {OURS} side against {other.shape} on the {side} side"
            return shapes, diagnose_shape(a, other)
    if a.size == 0:
        return f"zero elements (shape {a.shape}): nothing was compared", ""
    if a.dtype.name != b.dtype.name:
        against = f"against {b.dtype.name} on the {REFERENCE} side"
        return f"dtype {a.dtype.name} on the {OURS} side {against}", ""
    return "", ""


def _not_finite(
    name: str, arrays: dict[str, np.ndarray], tolerance: Tolerance
) -> Comparison | None:
    """The failed comparison of arrays with a NaN or an infinity, None of others."""
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
    """Measures ours against the oracle where there is one (and PyTorch, too), else PyTorch's."""
    a, b, o = arrays[OURS], arrays[REFERENCE], arrays.get(ORACLE)
    judge = b if o is None else o
    bound, scale, unit, peer = tolerance.value, 1.0, "", None
    if tolerance.kind == "relative":
        gap, worst = relative_gap(a, judge, tolerance.floor or 0.0)
        unit = "element"
    else:
        gap = Gap.between(a, judge, None if o is None else b)
        worst = gap.largest
    refusal = None if gap.finite else _not_finite(name, arrays, tolerance)
    if refusal is not None:
        return refusal
    if tolerance.kind in ("scaled", *JUDGED_BY_ORACLE):
        is_zero = zero_scale is not None and gap.peak < ZERO_RATIO * zero_scale
        norm = "max" if is_zero else tolerance.norm
        unit = "zero_scale" if is_zero else "L2 norm" if norm == "l2" else "scale"
        scale = zero_scale if is_zero else gap.size(norm)
        scale = 1.0 if scale == 0 else max(scale, TINY if o is None else LEAST_OF_FLOAT32)
        worst, bound = gap.distance(norm) / scale, tolerance.lowest_bound
        if gap.peer is not None:  # PyTorch's own distance from the oracle widens the bound
            peer = gap.peer.distance(norm) / scale
            peer_bound = 0.0 if is_zero else (tolerance.factor or 0.0) * peer
            if tolerance.kind == "oracle" or peer_bound <= CEILING:
                bound = max(tolerance.bias + peer_bound, bound)
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


@dataclass
class Gap:
    """How far apart two arrays are and how large the second one is, from one look at each.

    Attributes:
        largest: largest absolute difference, 0 for empty arrays.
        position: where that is, in the flat array.
        peak: largest absolute value of the second array.
        peer: how far a third array is from the second.
    """

    largest: float = 0.0
    position: int = 0
    peak: float = 0.0
    finite: bool = True
    peer: Gap | None = None
    _squared_distance: float = 0.0
    _squared_size: float = 0.0

    @classmethod
    def between(cls, a: np.ndarray, judge: np.ndarray, peer: np.ndarray | None = None) -> Gap:
        """Measure piece by piece: large arrays pass through the cache once, and none is made.

        Args:
            a: (...) numbers.
            peer: (...) the same shape, None for none.
        """
        gap = cls(peer=None if peer is None else cls())
        sides = [pieces(array) for array in (a, judge, peer) if array is not None]
        start = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for part, judge_part, *peer_parts in zip(*sides, strict=True):
                gap._add(part, judge_part, start)
                gap.peak = max(gap.peak, peak(judge_part))
                gap._squared_size += _squares(judge_part)
                for piece in peer_parts:
                    gap.peer._add(piece, judge_part, start)
                start += part.size
        if gap.peer is not None:
            gap.finite &= gap.peer.finite
        return gap

    def distance(self, norm: str) -> float:
        """The "max" or the "l2" norm of the difference."""
        return self.largest if norm == "max" else math.sqrt(self._squared_distance)

    def size(self, norm: str) -> float:
        """The "max" or the "l2" norm of the second array."""
        return self.peak if norm == "max" else math.sqrt(self._squared_size)

    def _add(self, part: np.ndarray, judge_part: np.ndarray, start: int) -> None:
        difference = _difference(part, judge_part)
        most = float(difference.max())
        if not math.isfinite(most):
            self.finite = False
            difference = _defined(difference)
            most = float(difference.max())
        if most > self.largest:
            self.largest, self.position = most, start + int(difference.argmax())
        self._squared_distance += _squares(difference)


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The array in flat parts of about PIECE numbers; arrays of one shape are cut alike.

    Whole rows are cut, so that a transposed matrix is not copied as a whole.
    """
    rows = 0 if array.ndim < 2 else PIECE // max(1, array[0].size) if len(array) else 1
    if not rows:
        array, rows = np.ravel(array), PIECE
    return (array[start : start + rows].ravel() for start in range(0, len(array), rows))


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |a - b| in float64, NaN where a side is NaN or both are the same infinity."""
    if LOW_PRECISION[0] in (a.dtype.name, b.dtype.name):
        a, b = a.astype(np.float64), b.astype(np.float64)
    difference = np.asarray(np.subtract(a, b, dtype=np.float64))
    np.abs(difference, out=difference)
    if a.dtype.kind in "iu":  # neighbours above 2**53 are one number in float64
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


def relative_gap(a: np.ndarray, judge: np.ndarray, floor: float) -> tuple[Gap, float]:
    """Measure each element by its own size; where that is 0, only equality is within any bound.

    Args:
        a: (...) numbers.
        judge: (...) the same shape.
        floor: share of the largest size that an element has at least.

    Returns:
        The gap at the worst element, and its distance in units of its size.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        difference = _defined(_difference(a, judge))
        size = np.maximum(np.abs(judge.astype(np.float64)), floor * peak(judge))
        elements = np.asarray(np.where(difference == 0, 0.0, difference / size))
    at = int(elements.argmax())
    finite = bool(np.isfinite(a).all() and np.isfinite(judge).all())
    return Gap(float(difference.max()), at, finite=finite), float(elements.flat[at])


def diagnose(ours: np.ndarray, reference: np.ndarray, allowed: float) -> str:
    """Names the signature of a difference between two arrays of one shape.

    Args:
        allowed: absolute difference that counts as equal.

    Returns:
        A hint such as "looks transposed" or "is 3.000 x the reference"; "" when nothing fits.
    """
    if ours.size > LIMIT:
        return ""
    a, b = ours.astype(np.float64), reference.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    with np.errstate(over="ignore", invalid="ignore"):
        near = max(allowed, EXPLAINED * float(np.abs(a - b).max()))
        if not a.any():
            return "is all zeros"
        hint = next((says for says, guess in _made(a, b) if _close(a, guess, near)), "")
        return hint or _permuted(a, b, near) or _confined(np.abs(a - b) > allowed)


def diagnose_shape(ours: np.ndarray, reference: np.ndarray) -> str:
    """Names what two arrays of different shape have in common, "" when nothing."""
    a, b = ours, reference
    if max(a.size, b.size) > LIMIT or a.size == 0 or b.size == 0:
        return ""
    near = 1e-5 * float(np.abs(b).max())
    if a.size == b.size and _close(a.ravel(), b.ravel(), near):
        return "the same values in the same order: only the shape differs"
    if a.ndim == b.ndim and a.ndim <= 4 and a.size == b.size:
        for axes in itertools.permutations(range(b.ndim)):
            turned = b.transpose(axes)
            if turned.shape == a.shape and _close(a, turned, near):
                order = "" if b.ndim == 2 else f": the reference's axes in the order {axes}"
                return f"looks transposed{order}"
    if a.ndim == b.ndim:
        common = tuple(slice(0, min(m, n)) for m, n in zip(a.shape, b.shape, strict=True))
        if _close(a[common], b[common], near):
            axes = [i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n]
            along = ", ".join(map(str, axes))
            return f"equal where both have elements: longer or shorter along axis {along}"
    return ""


def _close(a: np.ndarray, b: np.ndarray, near: float) -> bool:
    return bool(np.abs(a.astype(np.float64) - b).max() <= near)


def _made(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Hints, and what ours would be if they were true: the plain ones first."""
    yield "has the opposite sign", -b
    for i, j in itertools.combinations(range(a.ndim), 2):
        if a.shape[i] == a.shape[j] > 1:
            swapped = "" if a.ndim == 2 else f": axes {i} and {j} are swapped"
            yield f"looks transposed{swapped}", b.swapaxes(i, j)
    for axis, step in itertools.product(range(a.ndim), (1, -1)):
        if a.shape[axis] > 2:
            word, end = ("late", 0) if step == 1 else ("early", -1)
            moved, edge = np.roll(b, step, axis), (slice(None),) * axis + (end,)
            moved[edge] = a[edge]
            comes = f"(ours comes one position too {word})"
            yield f"looks shifted by one along axis {axis} {comes}", moved
    for axis in range(a.ndim):
        if a.shape[axis] > 1:
            yield f"looks reversed along axis {axis}", np.flip(b, axis)
    energy = float(np.vdot(b, b))
    factor = float(np.vdot(b, a)) / energy if 0 < energy < math.inf else 0.0
    if factor:
        plain = abs(factor - 1) > 0.01 and 0.01 < abs(factor) < 1000
        yield f"is {factor:.{'3f' if plain else '9g'}} x the reference", factor * b
    if a.size > 2:
        constant = float((a - b).mean())
        sign = "plus" if constant > 0 else "minus"
        yield f"is the reference {sign} {abs(constant):.6g} everywhere", b + constant


def _permuted(a: np.ndarray, b: np.ndarray, near: float) -> str:
    if a.size < 2 or not _close(np.sort(a, axis=None), np.sort(b, axis=None), near):
        return ""
    return "has the same values in another order (a permutation)"


def _confined(bad: np.ndarray) -> str:
    """Where the elements out of tolerance lie, when they are few or share an index."""
    count = int(bad.sum())
    if count == 0 or bad.size == 1:
        return ""
    places = []
    for axis, length in enumerate(bad.shape):
        hit = np.flatnonzero(bad.any(axis=tuple(i for i in range(bad.ndim) if i != axis)))
        if length > 1 and len(hit) == 1:
            places.append(f"index {hit[0]} of axis {axis}")
    place = f", all at {' and '.join(places)}" if places else ""
    return f"{count:,} of {bad.size:,} elements are out of tolerance{place}"
