"""Candidate edits of one array, and what makes a converted tensor wrong.

Moves of its numbers, and one computation with fitted numbers. Slices are told apart by their
hashes, so that every question about an order is one about whole numbers.

Legend: a = Paddle's array, b = PyTorch's; float64 and of one shape in edits.
"""

from __future__ import annotations

import hashlib
import itertools
import os.path
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from align.explain.experiment import EXPLAINED, Edits, close_to, first_cause, scale
from align.judge.comparator import diagnose_shape
from align.record.arrays import Arrays

PARTS = (2, 3, 4)
SHOWN = 4
FARTHEST = 8  # places that an array may be shifted by
ROUNDING = 3e-7  # of the largest value: what one computation in float32 leaves
FRESH = 16  # elements from which a correlation says something
BUDGET = 120  # trials
LARGEST = 1_000_000  # elements; above, edits are tried one by one only
FACTORS = {
    255.0: " (not divided by 255 in Paddle)",
    1 / 255: " (divided by 255 once too often in Paddle)",
}


def every(a: np.ndarray, b: np.ndarray) -> Edits:
    """Yield the edits one by one, the simple ones first, then a turn and a computation."""
    yield from turned(b)
    yield from reordered(a, b)
    yield from computed(a, b)
    if a.size > LARGEST:
        return
    for says, once in turned(b):
        if once.shape == a.shape:
            for more, twice in computed(a, once):
                yield f"{says}; {more}", twice


def turned(b: np.ndarray) -> Edits:
    """Yield b flipped, with other axes, reshaped instead of transposed, of the opposite sign."""
    for axis in (axis for axis in range(b.ndim) if b.shape[axis] > 1):
        is_of_colours = axis == 1 and b.shape[1] == 3
        word = "channels are reversed (BGR against RGB)" if is_of_colours else "reversed"
        flip = " (a horizontal flip of images)" if axis == 3 else ""
        yield f"{word} along axis {axis}{flip}", np.flip(b, axis)
    for axes in list(itertools.permutations(range(b.ndim)))[1:] if 2 <= b.ndim <= 4 else ():
        says = f"axes are swapped: Paddle's are PyTorch's in the order {axes}"
        edited = b.transpose(axes)
        yield "transposed: no shape shows it" if b.ndim == 2 else says, edited
        says = "reshaped instead of transposed: the numbers run on in PyTorch's order"
        yield says, edited.reshape(b.shape)
    yield "has the opposite sign", -b


def reordered(a: np.ndarray, b: np.ndarray) -> Edits:
    """Yield the slices along one axis in another order, or shifted."""
    for axis in range(b.ndim):
        paddle_codes, torch_codes = slices(a, axis), slices(b, axis)
        same = np.array_equal(np.sort(paddle_codes), np.sort(torch_codes))
        if same and b.shape[axis] > 1:
            first = {code: i for i, code in reversed(list(enumerate(torch_codes.tolist())))}
            order = np.array([first[code] for code in paddle_codes.tolist()])
            yield _order_in_words(paddle_codes, torch_codes, order, axis), np.take(b, order, axis)
        if b.shape[axis] > 2:
            yield from shifted(a, b, (axis,))


def _order_in_words(
    paddle_codes: np.ndarray, torch_codes: np.ndarray, order: np.ndarray, axis: int
) -> str:
    """What an order of slices is called, for which paddle_codes = torch_codes[order]."""
    count, plain = len(order), np.arange(len(order))
    for parts in (n for n in PARTS if count % n == 0):
        chosen = order.reshape(parts, -1)[:, 0] * parts // count  # numbers of PyTorch's parts
        if np.array_equal(torch_codes[plain.reshape(parts, -1)[chosen].ravel()], paddle_codes):
            numbers = ", ".join(map(str, chosen))
            return f"its {parts} equal parts along axis {axis} are in the order {numbers}"
    moved = int(np.argmax(order != plain))
    example = f"{moved} of Paddle is {order[moved]} of PyTorch"
    for step in np.flatnonzero(torch_codes == paddle_codes[0])[:SHOWN]:
        if np.array_equal(np.roll(torch_codes, -step), paddle_codes):
            return f"shifted round by {min(step, count - step)} along axis {axis}: {example}"
    return f"slices along axis {axis} are in another order: {example}"


def shifted(a: np.ndarray, b: np.ndarray, axes: Sequence[int], what: str = "") -> Edits:
    """Yield b moved by some places along some axes; what falls in at the ends is Paddle's own."""
    reach = [range(-k, k + 1) for k in (min(FARTHEST, a.shape[i] // 2) for i in axes)]

    def overlap(steps: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        in_paddle, in_torch = [slice(None)] * a.ndim, [slice(None)] * a.ndim
        for axis, step in zip(axes, steps, strict=True):
            length, first, last = a.shape[axis], max(0, -step), max(0, step)
            in_paddle[axis] = slice(first, length - last)
            in_torch[axis] = slice(last, length - first)
        return tuple(in_paddle), tuple(in_torch)

    def apart(steps: Sequence[int]) -> tuple[float, int]:
        in_paddle, in_torch = overlap(steps)
        return float(np.abs(a[in_paddle] - b[in_torch]).mean()), sum(map(abs, steps))

    moves = [steps for steps in itertools.product(*reach) if any(steps)]
    if not moves:
        return
    steps = min(moves, key=apart)
    in_paddle, in_torch = overlap(steps)
    edited = a.copy()
    edited[in_paddle] = b[in_torch]
    if tuple(axes) == (0,):
        count = "one row" if abs(steps[0]) == 1 else f"{abs(steps[0])} rows"
        yield f"shifted by {count}: row i of Paddle is row i {steps[0]:+d} of PyTorch", edited
        return
    words = [f"{s:+d} along axis {i}" for s, i in zip(steps, axes, strict=True) if s]
    yield f"{what}shifted: Paddle's begins {' and '.join(words)}", edited


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Values rounded to bfloat16 (nearest, ties to even), held as float64."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    even = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    upper_half = (bits + even) & np.uint32(0xFFFF0000)
    return upper_half.view(np.float32).astype(np.float64).reshape(x.shape)


def _through(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x.astype(dtype).astype(np.float64)


PRECISIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "float32": _through("float32"),
    "float16": _through("float16"),
    "bfloat16": to_bfloat16,
    "whole numbers": np.rint,
    "whole numbers (cut off)": np.trunc,
}
"""Name -> what it makes of float64 values."""


def computed(a: np.ndarray, b: np.ndarray) -> Edits:
    """Yield b rounded, scaled, offset, scaled slice by slice."""
    for name, through in PRECISIONS.items():
        yield f"rounded to {name} in Paddle", through(b)
    if not b.any():
        return
    factor, constant = scale(a, b), float((a - b).mean())
    if factor:
        yield f"scaled: {factor:.6g} x PyTorch's values{_known(factor)}", factor * b
    if a.size > 2:
        sign = "plus" if constant > 0 else "minus"
        yield f"offset: PyTorch's values {sign} {abs(constant):.6g} everywhere", b + constant
    for axis in reversed(range(a.ndim)) if a.ndim > 1 else ():
        if a.shape[axis] > 1 and a.size // a.shape[axis] > 3:
            yield _scaled_slices(a, b, axis)


def _scaled_slices(a: np.ndarray, b: np.ndarray, axis: int) -> tuple[str, np.ndarray]:
    """Each slice with the scale and the offset that fit it best."""
    others = tuple(i for i in range(a.ndim) if i != axis)
    centred = b - b.mean(axis=others, keepdims=True)
    energy = (centred**2).sum(axis=others, keepdims=True)
    factor = (centred * a).sum(axis=others, keepdims=True) / np.where(energy > 0, energy, np.nan)
    offset = a.mean(axis=others, keepdims=True) - factor * b.mean(axis=others, keepdims=True)
    same = np.ptp(factor) <= 1e-4 * abs(factor.mean())
    says = (
        f"other mean and standard deviation: along axis {axis} Paddle's values are PyTorch's x "
        f"({_listed(factor.ravel())}) plus ({_listed(offset.ravel())})"
    )
    return says + (_known(factor.mean()) if same else ""), factor * b + offset


def _known(factor: float) -> str:
    return next((text for f, text in FACTORS.items() if abs(factor / f - 1) < 1e-4), "")


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(f"{v + 0.0:.4g}" for v in values[:SHOWN])
    return shown + (", ..." if len(values) > SHOWN else "")


def slices(array: np.ndarray, axis: int) -> np.ndarray:
    """Return (L,) one number for each slice along an axis, equal for equal slices."""
    rows = np.moveaxis(array, axis, 0) + 0.0  # -0 and 0 are one
    return np.array([hash(row.tobytes()) for row in rows])


class WeightExplainer:
    """Finds causes for the converted tensors of one model, in Paddle's layout.

    Args:
        ours: Paddle's tensors by name.
        expected: what they should be, by the same names; sources are searched over all of them.
    """

    def __init__(self, ours: Arrays, expected: Arrays) -> None:
        self.ours, self.expected = ours, expected
        self._names: dict[tuple, list[str]] = {}
        for name, array in expected.items():
            self._names.setdefault(_digest(array), []).append(name)

    def __call__(self, name: str) -> str:
        """Explain one tensor, "" when no edit does."""
        if name not in self.ours:
            return ""
        a, b = self.ours[name], self.expected[name]
        if a.shape != b.shape:
            return diagnose_shape(a, b)
        if a.dtype != b.dtype or not a.size:
            return ""
        if not np.isfinite(a).all():
            return f"{int((~np.isfinite(a)).sum())} values are not finite"
        sources = self._sources(name, a)
        a, b = a.astype(np.float64), b.astype(np.float64)
        near = min(EXPLAINED * np.abs(a - b).max(), ROUNDING * np.abs(a).max())
        edits = itertools.chain(sources, every(a, b) if a.size == 1 or np.ptp(a) else ())
        return first_cause(edits, close_to(a, near), BUDGET) or _unloaded(a, b)

    def _sources(self, name: str, a: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Other tensors that hold Paddle's values, those that share most of the path first."""
        digest, swaps, copies = _digest(self.expected[name]), [], []
        for array, word in ((a, ""), (a.T, ", transposed")) if a.ndim == 2 else ((a, ""),):
            names = [other for other in self._names.get(_digest(array), ()) if other != name]
            for other in sorted(names, key=lambda n: -len(os.path.commonprefix([n, name]))):
                if other in self.ours and _digest(self.ours[other]) == digest:
                    swaps.append((f"swapped with {other!r}: each holds the other's values", a))
                elif a.size == 1 or np.ptp(a):
                    copies.append((f"holds the values of {other!r}{word}", a))
        return swaps + copies


def _digest(array: np.ndarray) -> tuple:
    data = np.ascontiguousarray(array.astype(np.float64) + 0.0)  # -0 and 0 are one
    return array.shape, hashlib.blake2b(data.tobytes(), digest_size=16).digest()


def _unloaded(a: np.ndarray, b: np.ndarray) -> str:
    """What the values look like where no edit of PyTorch's makes them."""
    if a.size > 1 and not np.ptp(a):
        return f"perhaps never loaded: every value is {a.flat[0]:g}, an initial one"
    if a.size < FRESH or not a.std() or not b.std():
        return ""
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    is_fresh = abs(correlation) <= 4 / np.sqrt(a.size)
    return "perhaps never loaded: nothing in common with PyTorch's values" if is_fresh else ""
