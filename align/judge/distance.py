"""What the difference between two arrays looks like. Pure NumPy.

Legend: a = ours (Paddle), b = the reference (PyTorch).

A signature is a hypothesis about how ours came from the reference. It is named only when it
explains the difference: what remains is within the tolerance or at most 1 % of the difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

LIMIT = 4_000_000  # elements; sorting more is no longer cheap
EXPLAINED = 0.01  # part of the difference that may remain


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
    if a.size == b.size and _close(a.ravel(), b.ravel(), 1e-5 * float(np.abs(b).max())):
        return "the same values in the same order: only the shape differs"
    if a.ndim == b.ndim and a.ndim <= 4 and a.size == b.size:
        for axes in itertools.permutations(range(b.ndim)):
            turned = b.transpose(axes)
            if turned.shape == a.shape and _close(a, turned, 1e-5 * float(np.abs(b).max())):
                order = "" if b.ndim == 2 else f": the reference's axes in the order {axes}"
                return f"looks transposed{order}"
    if a.ndim == b.ndim:
        common = tuple(slice(0, min(m, n)) for m, n in zip(a.shape, b.shape, strict=True))
        if _close(a[common], b[common], 1e-5 * float(np.abs(b).max())):
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


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Values rounded to bfloat16 (nearest, ties to even), held as float64."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    even = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    return _upper_half(bits + even).reshape(x.shape)


def cut_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Values cut off to bfloat16, held as float64."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return _upper_half(bits).reshape(x.shape)


def _upper_half(bits: np.ndarray) -> np.ndarray:
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def _through(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x.astype(dtype).astype(np.float64)


PRECISIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "float32": _through("float32"),
    "float16": _through("float16"),
    "bfloat16": to_bfloat16,
    "bfloat16 (cut off, not rounded)": cut_to_bfloat16,
    "whole numbers": np.rint,
    "whole numbers (cut off)": np.trunc,
}
"""Name -> what it makes of float64 values."""
