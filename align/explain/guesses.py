"""What the tensors of a wrong layer suggest without an experiment, worded as a guess."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from align.explain.arrays.output_edits import of_output
from align.explain.calls.layer_words import unequal
from align.pair.isolation import LOW, Guilty, is_mask
from align.record.arrays import Arrays

EXPLAINED = 0.01  # part of the difference that may remain
SHOWN = 6


def of_tensors(guilty: Guilty, weights: Arrays, layer: Any, module: Any) -> str:
    """The likely cause of a wrong layer that is not run again.

    Args:
        guilty: from inject mode.
        weights: tensors of the Paddle layer by leaf name, float64.
        layer: the Paddle layer, or what a dump says of it.
        module: the PyTorch module, likewise.
    """
    return guilty.note or of_output(guilty, weights) or guess(guilty, layer, module)


def guess(guilty: Guilty, layer: Any = None, module: Any = None) -> str:
    """The first thing that is odd about a wrong layer, "" without one.

    Args:
        guilty: from inject mode.
        layer: the Paddle layer, or what a dump says of it.
        module: the PyTorch module, likewise.
    """
    told = "; ".join(one.says for one in unequal(layer, module))
    if told:
        return told
    ours, expected = guilty.ours, guilty.expected
    if ours is None or expected is None or ours.shape != expected.shape or ours.dtype.kind != "f":
        return ""
    if not np.isfinite(ours).all() or not ours.size:
        return ""
    a, b = ours.astype(np.float64), expected.astype(np.float64)
    tests = _masked(a, b), _factor(a, b, guilty), _factors(a, b), _padded(a, b, guilty)
    with np.errstate(all="ignore"):
        return next((text for test in tests for text in test), "")


def _masked(a: np.ndarray, b: np.ndarray) -> Iterator[str]:
    """Scores that one side hides and the other does not."""
    hidden, own = b <= LOW, a <= LOW
    if (hidden != own).any():
        yield (
            f"perhaps another mask: Paddle hides {int(own.sum())} of {own.size} scores, PyTorch "
            f"{int(hidden.sum())}"
        )


def _factor(a: np.ndarray, b: np.ndarray, guilty: Guilty) -> Iterator[str]:
    """One factor, by its name where it is made of a length."""
    energy = float(np.vdot(b, b))
    factor = float(np.vdot(a, b)) / energy if energy else 0.0
    if not factor or np.abs(a - factor * b).max() > EXPLAINED * np.abs(a - b).max():
        return
    for name, x in [*guilty.inputs, ("the output", b)]:
        for axis, n in enumerate(x.shape):
            for value, text in _NAMED.items() if n > 1 else ():
                if abs(factor / value(n) - 1) < 1e-6:
                    where = f"n = {n} is the length of axis {axis} of {name}"
                    yield f"is {factor:.6g} x the reference: perhaps {text} ({where})"
    yield f"is {factor:.6g} x the reference: perhaps a scale is missing, doubled, squared"


_NAMED = {
    (lambda n: n): "a division by n is missing (1/N)",
    (lambda n: 1 / n): "one division by n is too many (1/N)",
    (lambda n: n**0.5): "a factor 1/sqrt(n) is missing",
    (lambda n: n**-0.5): "a factor 1/sqrt(n) is too many",
    (lambda n: (n - 1) / n): "it is divided by n, in PyTorch by n - 1 (unbiased)",
    (lambda n: n / (n - 1)): "it is divided by n - 1 (unbiased), in PyTorch by n",
}
"""A factor made of a length -> what it comes from."""


def _factors(a: np.ndarray, b: np.ndarray) -> Iterator[str]:
    """One factor for each index of an axis."""
    near = EXPLAINED * float(np.abs(a - b).max())
    for axis in (i for i in range(a.ndim) if a.ndim > 1 and a.shape[i] > 1):
        others = tuple(i for i in range(a.ndim) if i != axis)
        energy = (b * b).sum(axis=others, keepdims=True)
        factor = (a * b).sum(axis=others, keepdims=True) / np.where(energy > 0, energy, 1.0)
        if energy.all() and np.abs(factor * b - a).max() <= near:
            told = ", ".join(f"{f:.4g}" for f in factor.ravel()[:SHOWN])
            yield (
                f"each index of axis {axis} has a factor of its own ({told}): perhaps a count of "
                "padded positions, a norm, a trace"
            )


def _padded(a: np.ndarray, b: np.ndarray, guilty: Guilty) -> Iterator[str]:
    """A difference in the padded positions only, at the border of an image only."""
    bad = np.abs(a - b) > EXPLAINED * float(np.abs(a - b).max())
    for name, mask in guilty.inputs:
        flags = mask.dtype.kind in "iub" or is_mask(mask)
        if flags and mask.ndim == 2 and bad.ndim > 1 and bad.shape[:2] == mask.shape:
            places = bad.reshape(*mask.shape, -1).any(axis=-1)
            for value in (0, 1):
                if places.any() and not places[(mask != 0) != value].any():
                    rows = ", ".join(map(str, np.flatnonzero(places.any(axis=1))[:SHOWN]))
                    yield f"only positions where {name} is {value} differ (rows {rows}): padding"
    inner = (np.s_[..., n:-n, n:-n] for n in range(1, min(bad.shape[2:], default=0) // 2))
    if bad.ndim == 4 and any(not bad[at].any() for at in inner):
        yield "only the border of the image differs: perhaps the padding, its mode"
