"""One unit in the last place: what moves the reference to measure its own sensitivity to rounding.

Every floating number moves to the next one above or below, by chance. Neighbouring floating numbers
of one sign have neighbouring bit patterns, so adding or subtracting one does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from align.record.casting import is_array
from align.record.nested import replace

_PIECE = 2**16  # numbers moved at a time: they stay in the processor's cache
_GROUP = 2**22  # numbers of the weights written back to a model at a time


def perturbed(value: Any, rng: np.random.Generator) -> Any:
    """A structure with its floating arrays moved by one unit in the last place, up or down.

    Args:
        value: any nesting of tuples, lists, dicts and arrays; whole numbers stay as they are.
        rng: decides on the directions.
    """
    return replace(value, is_array, lambda _, array: _moved(np.asarray(array), rng))


def _moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A moved copy."""
    found = np.array(array, order="C")
    move(found, rng)
    return found


def move(array: np.ndarray, rng: np.random.Generator) -> None:
    """Move a contiguous array in place.

    Zeros become the smallest number of either sign; infinities, NaN and whole numbers stay.
    """
    if array.dtype.kind != "f":
        return
    flat = array.reshape(-1)
    whole = np.dtype(f"i{array.dtype.itemsize}")
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        drawn = np.frombuffer(rng.bytes(-(-piece.size // 8)), np.uint8)
        up = np.unpackbits(drawn, count=piece.size).view(np.int8)
        still, zero, before = ~np.isfinite(piece), piece == 0, piece.copy()
        piece.view(whole)[...] += 2 * up - 1
        if still.any():
            piece[still] = before[still]
        if zero.any():
            tiny = np.finfo(array.dtype).smallest_subnormal
            piece[zero] = np.where(up[zero], tiny, -tiny)


def groups(tensors: Iterable[tuple[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Named arrays in groups of bounded size, so that a whole model is never held twice."""
    held: dict[str, np.ndarray] = {}
    for name, array in tensors:
        held[name] = array
        if sum(a.size for a in held.values()) >= _GROUP:
            yield held
            held = {}
    if held:
        yield held
