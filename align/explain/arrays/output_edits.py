"""Candidate edits of one wrong output, from the tensors around it: no layer runs again.

What the reference's layer was given and what the layers inside it returned is at hand. An edit
turns Paddle's output into PyTorch's, or PyTorch's into Paddle's where only that way leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from align.explain.experiment import Edit, explain
from align.explain.formulas import ACTIVATIONS, softmax
from align.pair.isolation import LOW, Guilty, is_mask
from align.record.arrays import Arrays
from align.record.nested import Leaf

EXPLAINED = 0.01  # part of the difference that an edit may leave
TRIALS = 400
LARGE = 300_000  # elements; of more, the samples that differ most are looked at

Sides = tuple[np.ndarray, np.ndarray]
"""Paddle's output and PyTorch's."""


def of_output(guilty: Guilty, weights: Arrays) -> str:
    """The first edit after which both sides agree, "" without one.

    Args:
        guilty: from inject mode.
        weights: tensors of the Paddle layer by leaf name, float64.
    """
    ours, expected = guilty.ours, guilty.expected
    if ours is None or expected is None or ours.shape != expected.shape or ours.dtype.kind != "f":
        return ""
    if not ours.size or not np.isfinite(ours).all() or ((ours <= LOW) != (expected <= LOW)).any():
        return ""  # nothing to compare, or scores of which one side hides others
    held = [(n, a) for n, a in guilty.inputs if a.dtype.kind == "f" and not is_mask(a)]
    held += [(n, w) for n, w in weights.items() if w.ndim > 1 or w.shape == ours.shape[-1:]]
    sides, held = _cut(ours.astype(np.float64), expected.astype(np.float64), held)
    if sides[0].size > LARGE:
        return ""
    near = EXPLAINED * float(np.abs(sides[0] - sides[1]).max())

    def passes(made: Sides) -> bool:
        a, b = made
        return a.shape == b.shape and bool(np.abs(a - b).max() <= near)

    with np.errstate(all="ignore"):
        found = explain(sides, _edits(sides, held, near), passes, TRIALS)
    return "" if found is None else found.cause


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
    told = next((f": Paddle hands over {n}" for n, x in same if _near(x, sides[0], near)), "")
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


def _near(a: np.ndarray, b: np.ndarray, near: float) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() <= near)


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
    for name, x in held:
        known = _formulas(x.ndim)
        own = next((n for n, (_, f) in known.items() if _near(f(x), ours, near)), "")
        for other, (family, formula) in known.items():
            if own and other != own:
                said = f"{family} of {name}: Paddle computes {own}, PyTorch {other}"
                yield Edit(said, lambda s, x=x, f=formula: (f(x), s[1]))


def _tokens(ours: np.ndarray, name: str, x: np.ndarray, near: float) -> Iterator[Edit[Sides]]:
    """Another position of a sequence."""
    own = next((i for i in range(x.shape[1]) if _near(x[:, i], ours, near)), None)
    for i in range(x.shape[1]) if own is not None else ():
        said = f"another index: Paddle takes token {own} of {name}, PyTorch token {i}"
        yield Edit(said, lambda s, i=i: (x[:, i], s[1]))
