"""What a difference looks like: cheap signatures that turn a failed comparison into a likely cause.

Each signature is a hypothesis about how ours came from the reference. It is named only when it
explains the difference: what remains is within the tolerance or at most 1 % of the difference.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

LIMIT = 4_000_000  # elements; sorting more is no longer cheap
EXPLAINED = 0.01  # part of the difference that may remain


def diagnose(ours: np.ndarray, reference: np.ndarray, allowed: float) -> str:
    """Names the signature of a difference between two arrays of one shape.

    Args:
        ours: (...) the array that failed.
        reference: (...) what it was judged against.
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
        for signature in (_flipped, _transposed, _shifted, _reversed, _scaled, _offset, _permuted):
            hint = signature(a, b, near)
            if hint:
                return hint
        return _confined(np.abs(a - b) > allowed)


def diagnose_shape(ours: np.ndarray, reference: np.ndarray) -> str:
    """Names what two arrays of different shape have in common, "" when nothing.

    Args:
        ours: array of any shape.
        reference: array of another shape.
    """
    a, b = ours, reference
    if max(a.size, b.size) > LIMIT or a.size == 0 or b.size == 0:
        return ""
    if a.size == b.size and _close(a.ravel(), b.ravel(), 1e-5 * _peak(b)):
        return "the same values in the same order: only the shape differs"
    if a.ndim == b.ndim and a.ndim <= 4 and a.size == b.size:
        for axes in itertools.permutations(range(b.ndim)):
            turned = b.transpose(axes)
            if turned.shape == a.shape and _close(a, turned, 1e-5 * _peak(b)):
                order = "" if b.ndim == 2 else f": the reference's axes in the order {axes}"
                return f"looks transposed{order}"
    if a.ndim == b.ndim:
        common = tuple(slice(0, min(m, n)) for m, n in zip(a.shape, b.shape, strict=True))
        if _close(a[common], b[common], 1e-5 * _peak(b)):
            axes = [i for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n]
            along = ", ".join(map(str, axes))
            return f"equal where both have elements: longer or shorter along axis {along}"
    return ""


def _peak(array: np.ndarray) -> float:
    return float(np.abs(array.astype(np.float64)).max())


def _close(a: np.ndarray, b: np.ndarray, near: float) -> bool:
    return bool(np.abs(a.astype(np.float64) - b).max() <= near)


def _flipped(a: np.ndarray, b: np.ndarray, near: float) -> str:
    return "has the opposite sign" if _close(a, -b, near) else ""


def _transposed(a: np.ndarray, b: np.ndarray, near: float) -> str:
    for i, j in itertools.combinations(range(a.ndim), 2):
        if a.shape[i] == a.shape[j] > 1 and _close(a, b.swapaxes(i, j), near):
            swapped = "" if a.ndim == 2 else f": axes {i} and {j} are swapped"
            return f"looks transposed{swapped}"
    return ""


def _shifted(a: np.ndarray, b: np.ndarray, near: float) -> str:
    for axis, step in itertools.product(range(a.ndim), (1, -1)):
        if a.shape[axis] < 3:
            continue
        x, y = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
        late, early = (x[1:], y[:-1]) if step == 1 else (x[:-1], y[1:])
        if _close(late, early, near):
            word = "late" if step == 1 else "early"
            return f"looks shifted by one along axis {axis} (ours comes one position too {word})"
    return ""


def _reversed(a: np.ndarray, b: np.ndarray, near: float) -> str:
    for axis in range(a.ndim):
        if a.shape[axis] > 1 and _close(a, np.flip(b, axis), near):
            return f"looks reversed along axis {axis}"
    return ""


def _scaled(a: np.ndarray, b: np.ndarray, near: float) -> str:
    energy = float(np.vdot(b, b))
    if not 0 < energy < math.inf:
        return ""
    factor = float(np.vdot(b, a)) / energy
    if not _close(a, factor * b, near) or factor == 0:
        return ""
    plain = abs(factor - 1) > 0.01 and 0.01 < abs(factor) < 1000
    return f"is {factor:.3f} x the reference" if plain else f"is {factor:.9g} x the reference"


def _offset(a: np.ndarray, b: np.ndarray, near: float) -> str:
    constant = float((a - b).mean())
    if a.size > 2 and _close(a - constant, b, near):
        sign = "plus" if constant > 0 else "minus"
        return f"is the reference {sign} {abs(constant):.6g} everywhere"
    return ""


def _permuted(a: np.ndarray, b: np.ndarray, near: float) -> str:
    if a.size < 2 or not _close(np.sort(a, axis=None), np.sort(b, axis=None), near):
        return ""
    return "has the same values in another order (a permutation)"


def _confined(bad: np.ndarray) -> str:
    """Where the elements out of tolerance lie, when they are few or share an index."""
    count = int(bad.sum())
    if count == 0 or bad.size == 1:
        return ""
    held = []
    for axis, length in enumerate(bad.shape):
        hit = np.flatnonzero(bad.any(axis=tuple(i for i in range(bad.ndim) if i != axis)))
        if length > 1 and len(hit) == 1:
            held.append(f"index {hit[0]} of axis {axis}")
    place = f", all at {' and '.join(held)}" if held else ""
    return f"{count:,} of {bad.size:,} elements are out of tolerance{place}"
