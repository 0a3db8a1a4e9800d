"""Candidate edits of one array: moves of its numbers, and one computation with fitted numbers.

Slices are told apart by their hashes, so that every question about an order is one about whole
numbers.

a and b are float64 and of one shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from align.explain.experiment import Edits, scale
from align.judge.distance import PRECISIONS

PARTS = (2, 3, 4)
FEW = 0.1  # share of the slices that counts as some
SHOWN = 4

FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "square root": np.sqrt,
    "square": np.square,
    "inverse": lambda b: 1 / b,
    "inverse square root": lambda b: b**-0.5,
    "logarithm": np.log,
    "exponential": np.exp,
}
FACTORS: Mapping[float, str] = {
    255.0: " (not divided by 255 in Paddle)",
    1 / 255: " (divided by 255 once too often in Paddle)",
}


def single(a: np.ndarray, b: np.ndarray) -> Edits:
    """Every edit by itself, the simple ones first."""
    yield from turned(b)
    yield from reordered(a, b)
    yield from computed(a, b)


def pairs(a: np.ndarray, b: np.ndarray) -> Edits:
    """A turn of the axes, and then a computation."""
    for says, once in turned(b):
        for more, made in computed(a, once) if once.shape == a.shape else ():
            yield f"{says}; {more}", made


def turned(b: np.ndarray) -> Edits:
    """Flipped, axes swapped, reshaped instead of transposed, of the opposite sign."""
    for axes in [(axis,) for axis in range(b.ndim)] + [tuple(range(2, b.ndim))]:
        if axes and all(b.shape[axis] > 1 for axis in axes):
            colours = " (BGR against RGB)" if axes == (1,) and b.shape[1] == 3 else ""
            yield f"reversed along axis {' and '.join(map(str, axes))}{colours}", np.flip(b, axes)
    for axes in list(itertools.permutations(range(b.ndim)))[1:] if 2 <= b.ndim <= 4 else ():
        says = f"axes are swapped: Paddle's are PyTorch's in the order {axes}"
        made = b.transpose(axes)
        yield "transposed: no shape shows it" if b.ndim == 2 else says, made
        says = "reshaped instead of transposed: the numbers run on in PyTorch's order"
        yield says, made.reshape(b.shape)
    yield "has the opposite sign", -b


def reordered(a: np.ndarray, b: np.ndarray) -> Edits:
    """The slices along one axis in another order, shifted, or a few of them replaced."""
    for axis in range(b.ndim):
        own, theirs = slices(a, axis), slices(b, axis)
        first = {code: i for i, code in reversed(list(enumerate(theirs.tolist())))}
        order = np.array([first.get(code, -1) for code in own.tolist()])
        known = len(first) == len(theirs) or np.array_equal(np.sort(own), np.sort(theirs))
        if len(own) > 1 and order.min() >= 0 and known:
            orders = _orders(own, theirs, order, axis)
            says = next(says for says, taken in orders if np.array_equal(own, theirs[taken]))
            yield says, np.take(b, order, axis)
        if b.shape[axis] > 2:
            yield from shifted(a, b, (axis,))
    for axis in range(b.ndim):
        yield from _replaced(a, b, axis)


def _orders(
    own: np.ndarray, theirs: np.ndarray, order: np.ndarray, axis: int
) -> Iterator[tuple[str, np.ndarray]]:
    """What an order of slices, own = theirs[order] in hashes, may be called; itself at the end."""
    count, plain = len(order), np.arange(len(order))
    for parts in (n for n in PARTS if count % n == 0):
        held = order.reshape(parts, -1)[:, 0] * parts // count
        says = f"its {parts} equal parts along axis {axis} are in the order"
        yield f"{says} {', '.join(map(str, held))}", plain.reshape(parts, -1)[held].ravel()
    for first in np.flatnonzero(theirs == own[0])[:SHOWN]:
        step = int(first) if first <= count // 2 else int(first) - count
        ends = f"0 of Paddle is {step}" if step > 0 else f"{-step} of Paddle is 0"
        says = f"shifted round by {abs(step)} along axis {axis}: {ends} of PyTorch"
        yield says, np.roll(plain, -step)
    for parts, inner in itertools.product((3, 2, 4), range(1, count // 2)):
        if count % (parts * inner) == 0:
            taken = plain.reshape(parts, -1, inner).swapaxes(0, 1).ravel()
            says = f"{parts} parts along axis {axis} are interleaved, {inner} slices of each"
            yield f"{says}, in Paddle only", taken
            yield f"{says}, in PyTorch only", np.argsort(taken)
    moved = int(np.argmax(order != plain))
    where = f"{moved} of Paddle is {order[moved]} of PyTorch"
    yield f"slices along axis {axis} are in another order: {where}", order


def shifted(
    a: np.ndarray, b: np.ndarray, axes: Sequence[int], farthest: int = 4, what: str = ""
) -> Edits:
    """Moved by at most some places along some axes; what falls in at the ends is Paddle's own."""
    reach = [range(-k, k + 1) for k in (min(farthest, a.shape[i] // 2) for i in axes)]

    def overlap(steps: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        own, theirs = [slice(None)] * a.ndim, [slice(None)] * a.ndim
        for axis, step in zip(axes, steps, strict=True):
            length, first, last = a.shape[axis], max(0, -step), max(0, step)
            own[axis], theirs[axis] = slice(first, length - last), slice(last, length - first)
        return tuple(own), tuple(theirs)

    def apart(steps: Sequence[int]) -> tuple[float, int]:
        own, theirs = overlap(steps)
        return float(np.abs(a[own] - b[theirs]).mean()), sum(map(abs, steps))

    steps = min((one for one in itertools.product(*reach) if any(one)), key=apart, default=None)
    if steps is None:
        return
    own, theirs = overlap(steps)
    made = a.copy()
    made[own] = b[theirs]
    if tuple(axes) == (0,):
        count = "one row" if abs(steps[0]) == 1 else f"{abs(steps[0])} rows"
        says = f"shifted by {count}: row i of Paddle is row i {steps[0]:+d} of PyTorch"
    else:
        moves = [f"{s:+d} along axis {i}" for s, i in zip(steps, axes, strict=True) if s]
        says = f"shifted: Paddle's begins {' and '.join(moves)}"
    yield what + says, made


def _replaced(a: np.ndarray, b: np.ndarray, axis: int) -> Edits:
    """A few slices hold something else."""
    differ = np.flatnonzero(slices(a, axis) != slices(b, axis))
    if not 0 < len(differ) <= max(1, int(FEW * b.shape[axis])) < b.shape[axis] - 1:
        return
    rows = np.take(a, differ, axis)
    word = "row" if axis == 0 else f"index of axis {axis}"
    what = "different" if rows.any() else "zero"
    made = b.copy()
    made[(slice(None),) * axis + (differ,)] = rows
    yield f"only {word} {listed(differ)} differs: {what} in Paddle", made


def computed(a: np.ndarray, b: np.ndarray) -> Edits:
    """Rounded, scaled, offset, another function of the values, scaled slice by slice."""
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
    for name, function in FUNCTIONS.items():
        yield f"holds the {name} of PyTorch's values", function(b)
    for axis in reversed(range(a.ndim)) if a.ndim > 1 else ():
        if a.shape[axis] > 1 and a.size // a.shape[axis] > 3:
            yield _sliced(a, b, axis)


def _sliced(a: np.ndarray, b: np.ndarray, axis: int) -> tuple[str, np.ndarray]:
    """Each slice with the scale and the offset that fit it best."""
    others = tuple(i for i in range(a.ndim) if i != axis)
    centred = b - b.mean(axis=others, keepdims=True)
    energy = (centred**2).sum(axis=others, keepdims=True)
    factor = (centred * a).sum(axis=others, keepdims=True) / np.where(energy > 0, energy, np.nan)
    offset = a.mean(axis=others, keepdims=True) - factor * b.mean(axis=others, keepdims=True)
    same = np.ptp(factor) <= 1e-4 * abs(factor.mean())
    says = (
        f"other mean and standard deviation: along axis {axis} Paddle's values are PyTorch's x "
        f"({listed(factor.ravel())}) plus ({listed(offset.ravel())})"
    )
    return says + (_known(factor.mean()) if same else ""), factor * b + offset


def _known(factor: float) -> str:
    return next((text for f, text in FACTORS.items() if abs(factor / f - 1) < 1e-4), "")


def listed(values: np.ndarray) -> str:
    """The first few of some numbers."""
    shown = ", ".join(f"{v + 0.0:.4g}" for v in values[:SHOWN])
    return shown + (", ..." if len(values) > SHOWN else "")


def slices(array: np.ndarray, axis: int) -> np.ndarray:
    """(L,) one number for each slice along an axis, equal for equal slices."""
    rows = np.moveaxis(array, axis, 0) + 0.0  # -0 and 0 are one
    return np.array([hash(row.tobytes()) for row in rows])
