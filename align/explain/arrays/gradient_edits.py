"""Candidate edits of one wrong gradient, from the gradients that arrive at the same code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from align.explain.experiment import (
    EXPLAINED,
    Edits,
    close_to,
    first_cause,
    named_factor,
    scale,
)
from align.judge.distance import diagnose

TRIALS = 30
NO_TORCH = "PyTorch sends no gradient back"
_CUT = "the graph is cut there (detach, stop_gradient, no_grad, an operator without a gradient)"
_UNCHANGED = (
    "straight-through: the gradient passes unchanged in Paddle, as through the identity: the "
    "derivative is missing"
)
UNKNOWN = (
    "the forward pass is right and the gradient is not: perhaps the graph is cut in a part of it "
    "(detach, stop_gradient, diag_embed)"
)


def explain_gradient(
    ours: np.ndarray,
    expected: np.ndarray,
    seeds: Sequence[np.ndarray] = (),
    values: np.ndarray | None = None,
) -> str:
    """The cause of a wrong gradient of code whose output is right; a guess without one.

    Args:
        ours: Paddle's gradient.
        expected: PyTorch's.
        seeds: gradients that arrive at the outputs of the same code, the reference's.
        values: the tensor whose gradient this is (the layer's input), None when unknown.
    """
    if ours.shape != expected.shape or not ours.size or not np.isfinite(ours).all():
        return ""
    a, b = ours.astype(np.float64), expected.astype(np.float64)
    if np.abs(b).max() <= 1e-12 * np.abs(a).max():
        return f"{NO_TORCH} here (detach, no_grad); Paddle does"
    near = EXPLAINED * float(np.abs(a - b).max())
    found = first_cause(_edits(a, b, seeds, values), close_to(a, near), TRIALS)
    hint = "" if found else diagnose(a, b, near)
    named = hint and "out of tolerance" not in hint
    return found or (f"its backward pass: the gradient {hint}" if named else UNKNOWN)


def _edits(
    a: np.ndarray, b: np.ndarray, seeds: Sequence[np.ndarray], values: np.ndarray | None
) -> Edits:
    """The simple ones first: what can be two things is called the simpler one."""
    yield f"no gradient comes back: {_CUT}", 0 * b
    lengths = {f"the length of axis {i}": n for seed in seeds[:1] for i, n in enumerate(seed.shape)}
    factor = scale(a, b)
    told = named_factor(factor, lengths)
    said = f"its backward pass: the gradient is {factor:.3f} x the reference"
    yield f"{said}: perhaps {told}" if told else said, factor * b
    alike = [seed.astype(np.float64) for seed in seeds if seed.shape == b.shape]
    branch = "the gradient through the residual connection is"
    for seed in alike:
        yield f"{branch} missing: the shortcut is detached", b - seed
        yield f"{branch} counted once too often", b + seed
    for seed in alike:
        yield _UNCHANGED, seed
    top = float(np.abs(a).max())
    if (np.abs(a) >= (1 - 1e-9) * top).sum() > 1:
        yield f"the gradient is clipped at {top:.4g} in Paddle", np.clip(b, -top, top)
    if values is None and a.ndim == 2:
        yield from _row(a, b)
    open_ = a != 0
    yield f"Paddle sends no gradient back {_where(values, ~open_)}, PyTorch does", b * open_
    shut = (b == 0) & open_
    if not shut.all():
        told = f"{NO_TORCH} {_where(values, shut)}, Paddle does"
        yield told, np.where(shut, a, b)


def _row(a: np.ndarray, b: np.ndarray) -> Edits:
    """A row of a parameter that only one side trains."""
    trained = [x.any(axis=1) for x in (a, b)]
    for row in np.flatnonzero(trained[0] != trained[1])[:1]:
        does = ("does not train it", "does") if trained[1][row] else ("trains it", "does not")
        made = b.copy()
        made[row] = a[row]
        yield f"padding_idx: row {row} of the embedding: Paddle {does[0]}, PyTorch {does[1]}", made


def _where(values: np.ndarray | None, still: np.ndarray) -> str:
    """Which elements get no gradient, by the values of the tensor."""
    share = f"for {int(still.sum())} of {still.size} elements"
    if values is None or values.shape != still.shape or still.all() or not still.any():
        return share
    held, rest = values[still], values[~still]
    if held.max() <= 0:
        return f"{share}, where the input is negative (as through a ReLU)"
    if held.min() > rest.max():
        return f"{share}, where the input is above {rest.max():.4g} (as through a clip)"
    if held.max() < rest.min():
        return f"{share}, where the input is below {rest.min():.4g} (as through a clip)"
    return share
