"""Candidate edits of one wrong output, from the tensors around it: no layer runs again.

What the reference's layer was given and what the layers inside it returned is at hand. An edit
makes both sides' outputs equal. What an edit says that fits without naming what a program does is a
guess, and worded as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from align.explain.arrays.array_edits import listed
from align.explain.calls.layer_words import unequal
from align.explain.experiment import (
    EXPLAINED,
    SAME,
    Edits,
    close_to,
    first_cause,
    named_factor,
    scale,
)
from align.explain.formulas import ACTIVATIONS, softmax
from align.pair.isolation import LOW, Guilty, is_mask
from align.record.arrays import Arrays, Leaf

TRIALS = 400
INFINITE = 1e30  # numbers beyond it hide a score
LARGE = 300_000  # elements; of more, the samples that differ most are looked at

Sides = tuple[np.ndarray, np.ndarray]
"""Paddle's output and PyTorch's."""
Made = Iterator[tuple[str, Sides]]
"""Sentences, each with what would be equal if it were true."""


def of_output(guilty: Guilty, weights: Arrays) -> str:
    """The first edit after which both sides agree, "" without; weights are the Paddle layer's."""
    cast = _cast(guilty.ours, guilty.expected)
    if cast:
        return cast
    sides = _comparable(guilty)
    hides = "" if sides is None else _hidden(*sides)
    if sides is None or hides:
        return "" if hides.startswith("perhaps") else hides
    ours = sides[0]
    held = [(n, a) for n, a in guilty.inputs if a.dtype.kind == "f" and not is_mask(a)]
    held += [(n, w) for n, w in weights.items() if w.ndim > 1 or w.shape == ours.shape[-1:]]
    sides, held = _cut(*sides, held)
    if sides[0].size > LARGE:
        return ""
    near = _near(*sides)
    return first_cause(_edits(*sides, held, near), lambda s: close_to(s[1], near)(s[0]), TRIALS)


def guess(guilty: Guilty, layer: Any = None, module: Any = None) -> str:
    """The first thing that is odd about a wrong layer (or what a dump says of it), "" without."""
    told, sides = "; ".join(one.says for one in unequal(layer, module)), _comparable(guilty)
    if told or sides is None:
        return told
    (a, b), hides = sides, _hidden(*sides)
    near = _near(a, b)
    return hides or first_cause(_odd(a, b, guilty.inputs, near), close_to(a, near), TRIALS)


def _comparable(guilty: Guilty) -> Sides | None:
    """Both sides in float64, None where there is nothing to compare."""
    ours, expected = guilty.ours, guilty.expected
    if ours is None or expected is None or ours.shape != expected.shape or ours.dtype.kind != "f":
        return None
    if not ours.size or not np.isfinite(ours).all():
        return None
    return ours.astype(np.float64), expected.astype(np.float64)


def _cast(a: np.ndarray | None, b: np.ndarray | None) -> str:
    """Says that both sides agree but for their dtype."""
    if a is None or b is None or a.dtype == b.dtype:
        return ""
    near = SAME * (float(np.abs(b).max(initial=0.0)) or 1.0)
    said = f"a cast: Paddle returns {a.dtype.name}, PyTorch {b.dtype.name}; the numbers agree"
    return said if close_to(a, near)(b) else ""


def _hidden(a: np.ndarray, b: np.ndarray) -> str:
    """Scores of which one side hides others than the other side, or by another number."""
    own, theirs = a <= LOW, b <= LOW
    if (own != theirs).any():
        counts = f"Paddle hides {int(own.sum())} of {own.size} scores, PyTorch {int(theirs.sum())}"
        return f"perhaps another mask: {counts}"
    if own.any() and np.allclose(a[~own], b[~own], rtol=SAME, atol=0):
        values = f"{a[own].min():.3g} in Paddle, {b[own].min():.3g} in PyTorch"
        return f"both hide the same scores, with another number ({values}); what is seen agrees"
    return ""


def _near(a: np.ndarray, b: np.ndarray) -> float:
    """What an edit may leave of the difference, that of numbers that stand for infinity apart."""
    return EXPLAINED * float(np.abs(a - b)[np.abs(b) < INFINITE].max(initial=0.0))


def _cut(ours: np.ndarray, expected: np.ndarray, held: Sequence[Leaf]) -> tuple[Sides, list[Leaf]]:
    """The samples of a large batch that differ most, in every array that has a batch."""
    total = len(ours) if ours.ndim > 1 else 1
    count = max(LARGE * total // ours.size, 1)
    if count >= total:
        return (ours, expected), [(n, a.astype(np.float64)) for n, a in held]
    apart = np.abs(ours - expected).reshape(total, -1).max(axis=1)
    chosen = np.sort(np.argsort(-apart)[:count])
    cut = [(n, a[chosen] if a.ndim and len(a) == total else a) for n, a in held]
    return (ours[chosen], expected[chosen]), [(n, a.astype(np.float64)) for n, a in cut]


def _edits(a: np.ndarray, b: np.ndarray, held: Sequence[Leaf], near: float) -> Made:
    """The simple ones first; all tensors at hand for one kind of edit, then the next kind."""
    for name, x in held:
        if _fits(x.shape, b.shape):
            yield from _terms(a, b, name, x)
    same = [(n, x) for n, x in held if x.shape == b.shape]
    yield from _handed_over(a, b, same, near)
    for name, formula in ACTIVATIONS.items():
        yield f"activation: PyTorch applies {name} to this tensor, Paddle does not", (formula(a), b)
        yield f"activation: Paddle applies {name} to this tensor, PyTorch does not", (a, formula(b))
    yield from _computed(a, b, same, near)
    tokens = [
        (f"token {i} of {n}", x[:, i])
        for n, x in held
        if x.ndim == b.ndim + 1 and (*x.shape[:1], *x.shape[2:]) == b.shape
        for i in range(x.shape[1])
    ]
    yield from _handed_over(a, b, tokens, near)


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to a shape: of one rank, or one number for each channel."""
    if len(own) == 1 < len(shape):
        return own == shape[-1:]
    return len(own) == len(shape) and all(m in (1, n) for m, n in zip(own, shape, strict=True))


def _terms(a: np.ndarray, b: np.ndarray, name: str, x: np.ndarray) -> Made:
    """A tensor that is missing from a sum, added once too often, subtracted."""
    what = f"the {name}" if name == "bias" else name
    missing = f"{what} is not added" + (" (a missing residual connection)" if x.ndim > 2 else "")
    yield missing, (a + x, b)
    yield f"{what} is added once too often", (a - x, b)
    said = f"{what} is subtracted instead of added (swapped operands of a difference)"
    yield said, (a + 2 * x, b)


def _handed_over(a: np.ndarray, b: np.ndarray, held: Sequence[Leaf], near: float) -> Made:
    """A tensor at hand in place of the output."""
    told = next((f": Paddle hands over {n}" for n, x in held if close_to(x, near)(a)), "")
    for name, x in held:
        yield f"PyTorch hands over {name} as it is, Paddle does not{told}", (x, b)


def _formulas(rank: int) -> Mapping[str, tuple[str, Callable[[np.ndarray], np.ndarray]]]:
    """Name -> (family, formula of one tensor)."""
    found = {name: ("activation", f) for name, f in ACTIVATIONS.items()}
    for axis in range(rank):
        found[f"the softmax over axis {axis}"] = "softmax axis", lambda x, i=axis: softmax(x, i)
    return found


def _computed(a: np.ndarray, b: np.ndarray, held: Sequence[Leaf], near: float) -> Made:
    """The output of another formula of an input."""
    is_ours = close_to(a, near)
    for name, x in held:
        known = _formulas(x.ndim)
        own = next((n for n, (_, f) in known.items() if is_ours(f(x))), "")
        for other, (family, formula) in known.items():
            if own and other != own:
                said = f"{family} of {name}: Paddle computes {own}, PyTorch {other}"
                yield said, (formula(x), b)


def _odd(a: np.ndarray, b: np.ndarray, inputs: Sequence[Leaf], near: float) -> Edits:
    """Edits of PyTorch's output that give Paddle's, and what they suggest."""
    lengths = {
        f"the length of axis {axis} of {name}": n
        for name, x in (*inputs, ("the output", b))
        for axis, n in enumerate(x.shape)
    }
    factor = scale(a, b)
    if factor and abs(factor - 1) > SAME:
        told = named_factor(factor, lengths) or "a scale is missing, doubled, squared"
        yield f"is {factor:.6g} x the reference: perhaps {told}", factor * b
    for axis in (i for i in range(a.ndim) if a.ndim > 1 and a.shape[i] > 1):
        others = tuple(i for i in range(a.ndim) if i != axis)
        factor = (a * b).sum(axis=others, keepdims=True) / (b * b).sum(axis=others, keepdims=True)
        says = (
            f"each index of axis {axis} has a factor of its own ({listed(factor.ravel())}): "
            "perhaps a count of padded positions, a norm, a trace"
        )
        if np.abs(factor - 1).max() > SAME:
            yield says, factor * b
    for name, mask in inputs:
        flags = mask.dtype.kind in "iub" or is_mask(mask)
        if not (flags and mask.ndim == 2 and a.ndim > 1 and a.shape[:2] == mask.shape):
            continue
        wide = mask.reshape(*mask.shape, *[1] * (a.ndim - 2)) != 0
        rows = (np.abs(a - b) > near).reshape(len(a), -1).any(axis=1)
        told = listed(np.flatnonzero(rows))
        for value in (False, True):
            says = f"only positions where {name} is {value:d} differ (rows {told}): padding"
            yield says, np.where(wide == value, a, b)
