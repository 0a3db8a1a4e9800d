"""Candidate edits of one wrong output, from the tensors around it: no layer runs again.

What the reference's layer was given and what the layers inside it returned is at hand. An edit
turns Paddle's output into PyTorch's, or PyTorch's into Paddle's where only that way leads. What an
edit says that fits without naming what a program does is a guess, and worded as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from align.explain.calls.layer_words import unequal
from align.explain.experiment import EXPLAINED, Edit, close_to, first_cause, scale
from align.explain.formulas import ACTIVATIONS, softmax
from align.pair.isolation import LOW, Guilty, is_mask
from align.record.arrays import Arrays, Leaf

TRIALS = 400
LARGE = 300_000  # elements; of more, the samples that differ most are looked at
SHOWN = 6

Sides = tuple[np.ndarray, np.ndarray]
"""Paddle's output and PyTorch's."""


def of_output(guilty: Guilty, weights: Arrays) -> str:
    """The first edit after which both sides agree, "" without; weights are the Paddle layer's."""
    sides = _comparable(guilty)
    if sides is None or _hidden(*sides):
        return ""
    ours = sides[0]
    held = [(n, a) for n, a in guilty.inputs if a.dtype.kind == "f" and not is_mask(a)]
    held += [(n, w) for n, w in weights.items() if w.ndim > 1 or w.shape == ours.shape[-1:]]
    sides, held = _cut(*sides, held)
    if sides[0].size > LARGE:
        return ""
    near = EXPLAINED * float(np.abs(sides[0] - sides[1]).max())
    return first_cause(
        sides, _edits(sides, held, near), lambda s: close_to(s[1], near)(s[0]), TRIALS
    )


def guess(guilty: Guilty, layer: Any = None, module: Any = None) -> str:
    """The first thing that is odd about a wrong layer (or what a dump says of it), "" without."""
    told, sides = "; ".join(one.says for one in unequal(layer, module)), _comparable(guilty)
    if told or sides is None:
        return told
    (a, b), hides = sides, _hidden(*sides)
    near = EXPLAINED * float(np.abs(a - b).max())
    return hides or first_cause(b, _odd(a, b, guilty.inputs, near), close_to(a, near), TRIALS)


def _comparable(guilty: Guilty) -> Sides | None:
    """Both sides in float64, None where there is nothing to compare."""
    ours, expected = guilty.ours, guilty.expected
    if ours is None or expected is None or ours.shape != expected.shape or ours.dtype.kind != "f":
        return None
    if not ours.size or not np.isfinite(ours).all():
        return None
    return ours.astype(np.float64), expected.astype(np.float64)


def _hidden(a: np.ndarray, b: np.ndarray) -> str:
    """Scores of which one side hides others than the other side."""
    own, theirs = a <= LOW, b <= LOW
    counts = f"Paddle hides {int(own.sum())} of {own.size} scores, PyTorch {int(theirs.sum())}"
    return f"perhaps another mask: {counts}" if (own != theirs).any() else ""


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


def _edits(sides: Sides, held: Sequence[Leaf], near: float) -> Iterator[Edit[Sides]]:
    """The simple ones first; all tensors at hand for one kind of edit, then the next kind."""
    shape = sides[0].shape
    for name, x in held:
        if _fits(x.shape, shape):
            yield from _terms(name, x)
    same = [(n, x) for n, x in held if x.shape == shape]
    told = next((f": Paddle hands over {n}" for n, x in same if close_to(x, near)(sides[0])), "")
    for name, x in same:
        said = f"PyTorch hands over {name} as it is, Paddle does not{told}"
        yield Edit(said, lambda s, x=x: (x, s[1]))
    for name, formula in ACTIVATIONS.items():
        said = f"activation: PyTorch applies {name} to this tensor, Paddle does not"
        yield Edit(said, lambda s, f=formula: (f(s[0]), s[1]))
        said = f"activation: Paddle applies {name} to this tensor, PyTorch does not"
        yield Edit(said, lambda s, f=formula: (s[0], f(s[1])))
    yield from _computed(sides[0], same, near)
    for name, x in held:
        if x.ndim == len(shape) + 1 and (*x.shape[:1], *x.shape[2:]) == shape:
            yield from _tokens(sides[0], name, x, near)


def _fits(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to a shape: of one rank, or one number for each channel."""
    if len(own) == 1 < len(shape):
        return own == shape[-1:]
    return len(own) == len(shape) and all(m in (1, n) for m, n in zip(own, shape, strict=True))


def _terms(name: str, x: np.ndarray) -> Iterator[Edit[Sides]]:
    """A tensor that is missing from a sum, added once too often, subtracted."""
    what = f"the {name}" if name == "bias" else name
    missing = f"{what} is not added" + (" (a missing residual connection)" if x.ndim > 2 else "")
    yield Edit(missing, lambda s: (s[0] + x, s[1]))
    yield Edit(f"{what} is added once too often", lambda s: (s[0] - x, s[1]))
    said = f"{what} is subtracted instead of added (swapped operands of a difference)"
    yield Edit(said, lambda s: (s[0] + 2 * x, s[1]))


def _formulas(rank: int) -> Mapping[str, tuple[str, Callable[[np.ndarray], np.ndarray]]]:
    """Name -> (family, formula of one tensor)."""
    found = {name: ("activation", f) for name, f in ACTIVATIONS.items()}
    for axis in range(rank):
        found[f"the softmax over axis {axis}"] = "softmax axis", lambda x, i=axis: softmax(x, i)
    return found


def _computed(ours: np.ndarray, held: Sequence[Leaf], near: float) -> Iterator[Edit[Sides]]:
    """The output of another formula of an input."""
    is_ours = close_to(ours, near)
    for name, x in held:
        known = _formulas(x.ndim)
        own = next((n for n, (_, f) in known.items() if is_ours(f(x))), "")
        for other, (family, formula) in known.items():
            if own and other != own:
                said = f"{family} of {name}: Paddle computes {own}, PyTorch {other}"
                yield Edit(said, lambda s, x=x, f=formula: (f(x), s[1]))


def _tokens(ours: np.ndarray, name: str, x: np.ndarray, near: float) -> Iterator[Edit[Sides]]:
    """Another position of a sequence."""
    own = next((i for i in range(x.shape[1]) if close_to(ours, near)(x[:, i])), None)
    for i in range(x.shape[1]) if own is not None else ():
        said = f"another index: Paddle takes token {own} of {name}, PyTorch token {i}"
        yield Edit(said, lambda s, i=i: (x[:, i], s[1]))


def _odd(a: np.ndarray, b: np.ndarray, inputs: Sequence[Leaf], near: float) -> Iterator[Edit]:
    """Edits of PyTorch's output that give Paddle's, and what they suggest."""
    yield from _factor(scale(a, b), [*inputs, ("the output", b)])
    for axis in (i for i in range(a.ndim) if a.ndim > 1 and a.shape[i] > 1):
        others = tuple(i for i in range(a.ndim) if i != axis)
        factor = (a * b).sum(axis=others, keepdims=True) / (b * b).sum(axis=others, keepdims=True)
        told = ", ".join(f"{f:.4g}" for f in factor.ravel()[:SHOWN])
        yield Edit(
            f"each index of axis {axis} has a factor of its own ({told}): perhaps a count of "
            "padded positions, a norm, a trace",
            lambda x, f=factor: f * x,
        )
    for name, mask in inputs:
        flags = mask.dtype.kind in "iub" or is_mask(mask)
        if not (flags and mask.ndim == 2 and a.ndim > 1 and a.shape[:2] == mask.shape):
            continue
        wide = mask.reshape(*mask.shape, *[1] * (a.ndim - 2)) != 0
        rows = (np.abs(a - b) > near).reshape(len(a), -1).any(axis=1)
        told = ", ".join(map(str, np.flatnonzero(rows)[:SHOWN]))
        for value in (False, True):
            says = f"only positions where {name} is {value:d} differ (rows {told}): padding"
            yield Edit(says, lambda x, at=wide == value: np.where(at, a, x))


def _factor(factor: float, held: Sequence[Leaf]) -> Iterator[Edit[np.ndarray]]:
    """One factor, by its name where it is made of a length."""
    named = (
        f"{text} (n = {n} is the length of axis {axis} of {name})"
        for name, x in held
        for axis, n in enumerate(x.shape)
        for value, text in _NAMED.items()
        if n > 1 and abs(factor / value(n) - 1) < 1e-6
    )
    told = next(named, "a scale is missing, doubled, squared")
    says = f"is {factor:.6g} x the reference: perhaps {told}"
    yield Edit(says, lambda x: factor * x if factor else None)


_NAMED = {
    (lambda n: n): "a division by n is missing (1/N)",
    (lambda n: 1 / n): "one division by n is too many (1/N)",
    (lambda n: n**0.5): "a factor 1/sqrt(n) is missing",
    (lambda n: n**-0.5): "a factor 1/sqrt(n) is too many",
    (lambda n: (n - 1) / n): "it is divided by n, in PyTorch by n - 1 (unbiased)",
    (lambda n: n / (n - 1)): "it is divided by n - 1 (unbiased), in PyTorch by n",
}
"""A factor made of a length -> what it comes from."""
