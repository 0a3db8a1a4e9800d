"""From one wrongly converted tensor to the likely cause: where its numbers come from.

Tensors are in Paddle's layout. Rows, columns and blocks are told apart by signatures of slices, so
that every question about an order is one about whole numbers.

Legend: a = ours (Paddle), b = what PyTorch's tensor becomes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from align.explain.row_causes import mixed
from align.judge.diagnosis import diagnose, diagnose_shape
from align.judge.rounding import rounded_to
from align.record.arrays import Arrays

EXPLAINED = 0.01  # part of the difference that may remain
PARTS = (2, 3, 4, 6, 8, 12, 16)
PART_NAMES = {
    2: " (two halves: gate and value?)",
    3: " (q, k and v of a packed projection, or the gates of a GRU?)",
    4: " (the gates of an LSTM?)",
}
FARTHEST = 4  # rows that a table may be shifted by
FEW = 0.1  # share of the rows that counts as some
FRESH = 16  # elements from which a correlation says something

_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the square root of PyTorch's values (a standard deviation for a variance?)": np.sqrt,
    "the square of PyTorch's values (a variance for a standard deviation?)": np.square,
    "the inverse of PyTorch's values": lambda b: 1 / b,
    "1 / sqrt of PyTorch's values (an inverse standard deviation)": lambda b: 1 / np.sqrt(b),
    "the logarithm of PyTorch's values": np.log,
    "the exponential of PyTorch's values": np.exp,
}


class Explainer:
    """Finds causes for the tensors of one model.

    Args:
        ours: Paddle's tensors by name.
        expected: what they should be, by the same names.
    """

    def __init__(self, ours: Arrays, expected: Arrays) -> None:
        self.ours, self.expected = ours, expected
        self._names: dict[tuple, list[str]] = {}
        for name, array in expected.items():
            self._names.setdefault(_digest(array), []).append(name)

    def __call__(self, name: str) -> str:
        """The likely cause for one tensor, "" when nothing fits."""
        if name not in self.ours:
            return ""
        a, b = self.ours[name], self.expected[name]
        if a.shape != b.shape:
            return diagnose_shape(a, b)
        if a.dtype != b.dtype or not a.size:
            return ""
        if not np.isfinite(a).all():
            return f"{int((~np.isfinite(a)).sum())} values are not finite: memory never written?"
        a, b = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            return (
                self._exchanged(name, a)
                or _constant(a, b)
                or _turned(a, b)
                or self._of_another(name, a)
                or _in_another_order(a, b)
                or _shifted(a, b)
                or _some_rows(a, b)
                or _computed(a, b)
                or _fresh(a, b)
                or diagnose(a, b, 0.0)
            )

    def _exchanged(self, name: str, a: np.ndarray) -> str:
        """Two tensors that hold each other's values."""
        own = _digest(self.expected[name])
        for other in self._nearest(name, self._names.get(_digest(a), ())):
            held = self.ours.get(other)
            if held is not None and _digest(held) == own:
                return f"swapped with {other!r}: each holds the other's values"
        return ""

    def _of_another(self, name: str, a: np.ndarray) -> str:
        """The values of another tensor, perhaps transposed."""
        for other in self._nearest(name, self._names.get(_digest(a), ())):
            return f"holds the values of {other!r}"
        if a.ndim == 2:
            for other in self._nearest(name, self._names.get(_digest(a.T), ())):
                return f"holds the values of {other!r}, transposed"
        return ""

    def _nearest(self, name: str, names: tuple | list[str]) -> list[str]:
        """Other names, those that share most of the path first."""

        def shared(other: str) -> int:
            same = itertools.takewhile(lambda p: p[0] == p[1], zip(name, other, strict=False))
            return -len(list(same))

        return sorted((n for n in names if n != name), key=shared)


def _digest(array: np.ndarray) -> tuple:
    data = np.ascontiguousarray(array.astype(np.float64) + 0.0)  # -0 and 0 are one
    return array.shape, hashlib.blake2b(data.tobytes(), digest_size=16).digest()


def _constant(a: np.ndarray, b: np.ndarray) -> str:
    if a.size == 1 or (a != a.flat[0]).any():
        return ""
    return (
        f"never loaded: every value is {a.flat[0]:g}, the initial one, where PyTorch's lie between "
        f"{b.min():.3g} and {b.max():.3g}"
    )


def _turned(a: np.ndarray, b: np.ndarray) -> str:
    """Axes swapped, reshaped instead of transposed, flipped, of the opposite sign."""
    if a.ndim == 2 and a.shape[0] == a.shape[1] and np.array_equal(a, b.T):
        return "the square weight is transposed: no shape shows it"
    for axes in itertools.permutations(range(b.ndim)) if 2 <= b.ndim <= 4 else ():
        turned = b.transpose(axes)
        if axes == tuple(range(b.ndim)):
            continue
        if turned.shape == a.shape and np.array_equal(a, turned):
            return f"axes are swapped: Paddle's are PyTorch's in the order {axes}"
        if np.array_equal(a.ravel(), turned.ravel()):
            return "reshaped instead of transposed: the numbers run on in PyTorch's order"
    if a.ndim > 2:
        last = tuple(range(2, a.ndim))
        if np.array_equal(a, np.flip(b, last)) and not np.array_equal(a, b):
            return "the kernel is flipped in all its directions (convolution for correlation)"
    return "has the opposite sign" if np.array_equal(a, -b) else ""


def _slices(array: np.ndarray, axis: int) -> np.ndarray:
    """(L,) one number for each slice along an axis, equal for equal slices."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) + 0.0
    bits = np.ascontiguousarray(rows).view(np.uint64)
    bits = bits ^ (bits >> np.uint64(29))
    factors = mixed(bits.shape[1]) | np.uint64(1)
    return (bits * factors).sum(axis=1, dtype=np.uint64)


def _in_another_order(a: np.ndarray, b: np.ndarray) -> str:
    """The same slices along one axis, in another order."""
    for axis in range(a.ndim):
        own, theirs = _slices(a, axis), _slices(b, axis)
        if len(own) < 2 or len(np.unique(theirs)) < 2 or (own == theirs).all():
            continue
        if not np.array_equal(np.sort(own), np.sort(theirs)):
            continue
        text = _reversed(own, theirs, axis, a.ndim) or _blocks(own, theirs, axis)
        if text:
            return text
        where = int(np.argmax(own != theirs))
        source = int(np.argmax(theirs == own[where]))
        return (
            f"the {len(own)} slices along axis {axis} are in another order: {where} of Paddle is "
            f"{source} of PyTorch"
        )
    return ""


def _reversed(own: np.ndarray, theirs: np.ndarray, axis: int, ndim: int) -> str:
    if not np.array_equal(own, theirs[::-1]):
        return ""
    if ndim == 4 and axis == 1 and len(own) == 3:
        return "input channels are reversed (BGR against RGB)"
    if ndim > 2 and axis >= 2:
        return f"the kernel is flipped along axis {axis}"
    if len(own) in (2, 3):
        return _blocks(own, theirs, axis)
    return f"reversed along axis {axis}"


def _blocks(own: np.ndarray, theirs: np.ndarray, axis: int) -> str:
    """Equal blocks in another order, or taken alternately."""
    few, many = PARTS[:3], PARTS[3:]
    return (
        _in_blocks(own, theirs, axis, few)
        or _rotated(own, theirs, axis)
        or _interleaved(own, theirs, axis)
        or _in_blocks(own, theirs, axis, many)
    )


def _in_blocks(own: np.ndarray, theirs: np.ndarray, axis: int, counts: Sequence[int]) -> str:
    for count in counts:
        if len(own) % count:
            continue
        a, b = (tuple(map(tuple, v.reshape(count, -1))) for v in (own, theirs))
        if set(a) == set(b) and len(set(b)) == count:
            order = ", ".join(str(b.index(part)) for part in a)
            return (
                f"its {count} equal parts along axis {axis} are in the order {order}"
                f"{PART_NAMES.get(count, '')}"
            )
    return ""


def _rotated(own: np.ndarray, theirs: np.ndarray, axis: int) -> str:
    """Every slice some places on, the last ones at the beginning."""
    for step in np.flatnonzero(own == theirs[0])[:FARTHEST]:
        if np.array_equal(own, np.roll(theirs, step)):
            size, sign = (step, "-") if step <= len(own) // 2 else (len(own) - step, "+")
            return (
                f"rows are shifted round by {size} along axis {axis}: {size if sign == '-' else 0} "
                f"of Paddle is {0 if sign == '-' else size} of PyTorch"
            )
    return ""


def _interleaved(own: np.ndarray, theirs: np.ndarray, axis: int) -> str:
    for count, inner in itertools.product((3, 2, 4), range(1, len(own) // 2)):
        if len(own) % (count * inner):
            continue
        parts = len(own) // (count * inner)
        if np.array_equal(own, theirs.reshape(count, parts, inner).swapaxes(0, 1).ravel()):
            how = f"PyTorch's {count} parts are taken in turn, {inner} slices each"
        elif np.array_equal(own, theirs.reshape(parts, count, inner).swapaxes(0, 1).ravel()):
            how = f"PyTorch's alternate every {inner} slices, Paddle's follow one another"
        else:
            continue
        return f"{count} parts along axis {axis} are interleaved: {how} ({parts} heads?)"
    return ""


def _shifted(a: np.ndarray, b: np.ndarray) -> str:
    """Rows that moved by some places (the offset of a position table)."""
    if a.ndim < 2:
        return ""
    own, theirs = _slices(a, 0), _slices(b, 0)
    for step in range(1, min(FARTHEST, len(own) // 2) + 1):
        for early, late, sign in ((own, theirs, 1), (theirs, own, -1)):
            if np.array_equal(early[: len(early) - step], late[step:]):
                source = f"i {'+' if sign > 0 else '-'} {step}"
                return (
                    f"rows are shifted by {step}: row i of Paddle is row {source} of PyTorch (the "
                    "offset of a position table?)"
                )
    return ""


def _computed(a: np.ndarray, b: np.ndarray) -> str:
    """Rounded, scaled, offset, scaled for each channel, or another function of the values."""
    near = EXPLAINED * float(np.abs(a - b).max())
    precision = rounded_to(a, b)
    if precision:
        gap = float(np.abs(a - b).max() / np.abs(b).max())
        return f"rounded to {precision} on the way (off by {gap:.1e} of the largest value)"
    energy = float(np.vdot(b, b))
    factor = float(np.vdot(b, a)) / energy if energy else 0.0
    if factor and np.abs(a - factor * b).max() <= near:
        return f"scaled: {factor:.6g} x PyTorch's values"
    offset = float((a - b).mean())
    if a.size > 2 and np.abs(a - b - offset).max() <= near:
        return f"offset: PyTorch's values {'plus' if offset > 0 else 'minus'} {abs(offset):.6g}"
    for title, function in _FUNCTIONS.items():
        made = function(b)
        if np.isfinite(made).all() and np.abs(made - a).max() <= near:
            return f"holds {title}"
    return _scaled_by_axis(a, b, near)


def _scaled_by_axis(a: np.ndarray, b: np.ndarray, near: float) -> str:
    for axis in range(a.ndim if a.ndim > 1 else 0):
        others = tuple(i for i in range(a.ndim) if i != axis)
        energy = (b * b).sum(axis=others, keepdims=True)
        if a.shape[axis] < 2 or np.prod([a.shape[i] for i in others]) < 3 or not energy.all():
            continue
        factors = (a * b).sum(axis=others, keepdims=True) / energy
        if np.abs(a - factors * b).max() <= near:
            return (
                f"each slice along axis {axis} has a scale of its own ({factors.min():.4g} to "
                f"{factors.max():.4g}): a folded norm or weight normalisation?"
            )
    return ""


def _some_rows(a: np.ndarray, b: np.ndarray) -> str:
    """Most rows agree."""
    for axis in range(a.ndim):
        differ = np.flatnonzero(_slices(a, axis) != _slices(b, axis))
        if not 0 < len(differ) <= max(1, int(FEW * a.shape[axis])) or a.shape[axis] < 3:
            continue
        rows = np.moveaxis(a, axis, 0)[differ]
        what = "zero" if not rows.any() else "different"
        names = ", ".join(map(str, differ[:4])) + (", ..." if len(differ) > 4 else "")
        word = "row" if axis == 0 else f"index of axis {axis}"
        reason = " (a padding row that its layer sets to zero?)" if what == "zero" else ""
        return f"only {word} {names} differs: {what} in Paddle{reason}"
    return ""


def _fresh(a: np.ndarray, b: np.ndarray) -> str:
    """Nothing in common with the reference's values."""
    if a.size < FRESH or not a.std():
        return ""
    if not b.std():
        return (
            f"never loaded? Paddle's values vary (standard deviation {a.std():.3g}), PyTorch's "
            f"are all {b.flat[0]:g}"
        )
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    if abs(correlation) > 4 / np.sqrt(a.size) or np.array_equal(np.sort(a, None), np.sort(b, None)):
        return ""
    return (
        f"never loaded: looks like a fresh initialisation (standard deviation {a.std():.3g} "
        f"against PyTorch's {b.std():.3g}, correlation {correlation:.2f})"
    )
