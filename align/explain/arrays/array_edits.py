"""Candidate edits of one array: moves of its numbers, and one computation with one fitted number.

An edit turns PyTorch's array into what Paddle's would be if its sentence were true. Slices are told
apart by signatures, so that every question about an order is one about whole numbers.

Legend: a = ours (Paddle), b = the reference (PyTorch); both float64 and of one shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from align.explain.experiment import Edit
from align.judge.rounding import PRECISIONS

PARTS = {
    2: " (two halves: perhaps gate and value)",
    3: " (perhaps q, k and v of a packed projection, or the gates of a GRU)",
    4: " (perhaps the gates of an LSTM)",
    **dict.fromkeys((6, 8, 12, 16), ""),
}
FARTHEST = 4  # slices that a table may be shifted by
FEW = 0.1  # share of the slices that counts as some

FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "the square root of PyTorch's values (perhaps a standard deviation for a variance)": np.sqrt,
    "the square of PyTorch's values (perhaps a variance for a standard deviation)": np.square,
    "the inverse of PyTorch's values": lambda b: 1 / b,
    "1 / sqrt of PyTorch's values (perhaps an inverse standard deviation)": lambda b: b**-0.5,
    "the logarithm of PyTorch's values": np.log,
    "the exponential of PyTorch's values": np.exp,
}

Arrays = Iterator[Edit[np.ndarray]]


def turned(a: np.ndarray, b: np.ndarray) -> Arrays:
    """Axes swapped, reshaped instead of transposed, flipped, of the opposite sign."""
    for axes in list(itertools.permutations(range(b.ndim)))[1:] if 2 <= b.ndim <= 4 else ():
        says = f"axes are swapped: Paddle's are PyTorch's in the order {axes}"
        if b.ndim == 2:
            says = "the square weight is transposed: no shape shows it"
        yield Edit(says, lambda x, axes=axes: x.transpose(axes))
        yield Edit(
            "reshaped instead of transposed: the numbers run on in PyTorch's order",
            lambda x, axes=axes: x.transpose(axes).reshape(x.shape),
        )
    if b.ndim > 2:
        yield Edit(
            "the kernel is flipped in all its directions (convolution for correlation)",
            lambda x: np.flip(x, tuple(range(2, x.ndim))),
        )
    yield Edit("has the opposite sign", np.negative)


def reordered(a: np.ndarray, b: np.ndarray) -> Arrays:
    """The slices along one axis in another order, shifted, or a few of them replaced."""
    for axis in range(b.ndim):
        own, theirs = slices(a, axis), slices(b, axis)
        order = np.empty(len(own), int)
        order[np.argsort(own, kind="stable")] = np.argsort(theirs, kind="stable")
        if len(own) > 1 and np.array_equal(own, theirs[order]):
            says = _named(own, theirs, order, axis, b.ndim)
            yield Edit(says, lambda x, o=order, i=axis: np.take(x, o, axis=i))
        if b.ndim > 1:
            yield from _shifted(a, axis)
    for axis in range(b.ndim):
        differ = np.flatnonzero(slices(a, axis) != slices(b, axis))
        if b.shape[axis] > 2 and len(differ) <= max(1, int(FEW * b.shape[axis])):
            yield _replaced(a, differ, axis)


def _named(own: np.ndarray, theirs: np.ndarray, order: np.ndarray, axis: int, ndim: int) -> str:
    """An order of slices in words: own = theirs[order], signatures."""
    count = len(order)
    plain = np.arange(count)

    def is_in(candidate: np.ndarray) -> bool:
        return np.array_equal(own, theirs[candidate])

    if is_in(plain[::-1]) and (count > 2 or axis > 1):
        if ndim == 4 and axis == 1 and count == 3:
            return "input channels are reversed (BGR against RGB)"
        return f"{'the kernel is flipped' if axis > 1 else 'reversed'} along axis {axis}"
    blocks = {
        parts: held[:, 0] * parts // count
        for parts in PARTS
        if count % parts == 0
        and np.array_equal(
            (held := order.reshape(parts, -1)), held[:, :1] + plain[: count // parts]
        )
    }
    if blocks and min(blocks) < 6:
        return _in_parts(blocks, axis)
    for first in np.flatnonzero(theirs == own[0])[:FARTHEST]:
        if is_in((plain + first) % count):
            step = first if first <= count // 2 else first - count
            ends = f"0 of Paddle is {step}" if step > 0 else f"{-step} of Paddle is 0"
            return f"rows are shifted round by {abs(step)} along axis {axis}: {ends} of PyTorch"
    for parts, inner in itertools.product((3, 2, 4), range(1, count // 2)):
        heads = count // (parts * inner)
        if count % (parts * inner):
            continue
        taken = plain.reshape(parts, heads, inner).swapaxes(0, 1).ravel()
        says = f"{parts} parts along axis {axis} are interleaved: PyTorch's"
        if is_in(taken):
            return f"{says} are taken in turn, {inner} slices each ({heads} groups)"
        if is_in(np.argsort(taken)):
            return f"{says} alternate every {inner} slices, Paddle's do not"
    if blocks:
        return _in_parts(blocks, axis)
    moved = int(np.flatnonzero(order != plain)[0]) if (order != plain).any() else 0
    where = f"{moved} of Paddle is {order[moved]} of PyTorch"
    return f"slices along axis {axis} are in another order: {where}"


def _in_parts(blocks: Mapping[int, np.ndarray], axis: int) -> str:
    parts, held = min(blocks.items())
    shown = ", ".join(map(str, held))
    return f"its {parts} equal parts along axis {axis} are in the order {shown}{PARTS[parts]}"


def _shifted(a: np.ndarray, axis: int) -> Arrays:
    """Slices that moved by some places; what falls in at the end is Paddle's own."""
    for step in range(1, min(FARTHEST, a.shape[axis] // 2) + 1):
        for sign, word in ((1, "+"), (-1, "-")):

            def move(x: np.ndarray, step: int = step * sign) -> np.ndarray:
                made = np.roll(x, -step, axis)
                fallen = (slice(None),) * axis + (slice(-step, None) if step > 0 else slice(-step),)
                made[fallen] = a[fallen]
                return made

            says = f"row i of Paddle is row i {word} {step} of PyTorch"
            place = "rows are" if axis == 0 else f"looks shifted along axis {axis}: slices are"
            yield Edit(f"{place} shifted by {step}: {says}", move)


def _replaced(a: np.ndarray, differ: np.ndarray, axis: int) -> Edit[np.ndarray]:
    rows = np.take(a, differ, axis)
    names = ", ".join(map(str, differ[:4])) + (", ..." if len(differ) > 4 else "")
    word = "row" if axis == 0 else f"index of axis {axis}"
    what = "different" if rows.any() else "zero"
    reason = "" if rows.any() else " (perhaps a padding row that its layer sets to zero)"

    def put(x: np.ndarray) -> np.ndarray:
        made = x.copy()
        made[(slice(None),) * axis + (differ,)] = rows
        return made

    return Edit(f"only {word} {names} differs: {what} in Paddle{reason}", put)


def computed(a: np.ndarray, b: np.ndarray) -> Arrays:
    """Rounded, scaled, offset, another function of the values, scaled slice by slice."""
    for name, through in PRECISIONS.items():
        yield Edit(f"rounded to {name} in Paddle", through)
    if not b.any():
        return
    factor, constant = float(np.vdot(b, a) / np.vdot(b, b)), float((a - b).mean())
    if factor:
        yield Edit(f"scaled: {factor:.6g} x PyTorch's values", lambda x: factor * x)
    if a.size > 2:
        sign = "plus" if constant > 0 else "minus"
        says = f"offset: PyTorch's values {sign} {abs(constant):.6g} everywhere"
        yield Edit(says, lambda x: x + constant)
    for name, function in FUNCTIONS.items():
        yield Edit(f"holds {name}", function)
    for axis in range(a.ndim if a.ndim > 1 else 0):
        others = tuple(i for i in range(a.ndim) if i != axis)
        energy = (b * b).sum(axis=others, keepdims=True)
        if a.shape[axis] < 2 or a.size // a.shape[axis] < 3 or not energy.all():
            continue
        factors = (a * b).sum(axis=others, keepdims=True) / energy
        yield Edit(
            f"each slice along axis {axis} has a scale of its own ({factors.min():.4g} to "
            f"{factors.max():.4g}; perhaps a folded norm or weight normalisation)",
            lambda x, f=factors: f * x,
        )


def slices(array: np.ndarray, axis: int) -> np.ndarray:
    """(L,) one number for each slice along an axis, equal for equal slices."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) + 0.0
    bits = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint64)
    bits = bits ^ (bits >> np.uint64(29))
    return (bits * (mixed(bits.shape[1]) | np.uint64(1))).sum(axis=1, dtype=np.uint64)


def mixed(count: int) -> np.ndarray:
    """(count,) uint64: well mixed numbers, the same for equal positions."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def affine(a: np.ndarray, b: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset with which a = scale b + offset holds best, each over some axes.

    Args:
        a: ours.
        b: the reference's, of the same shape.
        axes: over which one scale and one offset hold.

    Returns:
        Both of b's rank; the scale is NaN where b is constant.
    """
    centred = b - b.mean(axis=axes, keepdims=True)
    energy = (centred**2).sum(axis=axes, keepdims=True)
    scale = (centred * a).sum(axis=axes, keepdims=True) / np.where(energy > 0, energy, np.nan)
    return scale, a.mean(axis=axes, keepdims=True) - scale * b.mean(axis=axes, keepdims=True)
