"""Candidate edits of one wrong gradient: what turns PyTorch's into Paddle's.

The gradients that arrive at the outputs of the same code are at hand, and the tensor whose gradient
it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.explain.experiment import EXPLAINED, Edit, close_to, first_cause, scale
from align.judge.distance import diagnose

TRIALS = 30
_CUT = "the graph is cut there (detach, stop_gradient, no_grad, an operator without a gradient)"
_UNCHANGED = (
    "straight-through: the gradient passes unchanged in Paddle, as through the identity: the "
    "derivative is missing"
)
UNKNOWN = (
    "the forward pass is right and the gradient is not: perhaps the graph is cut in a part of it "
    "(detach, stop_gradient, diag_embed)"
)


@dataclass
class GradientCase:
    """One wrong gradient.

    Attributes:
        ours: Paddle's gradient, of the shape of `expected`.
        expected: PyTorch's.
        seeds: gradients that arrive at the outputs of the same code, the reference's.
        values: the tensor whose gradient this is (the layer's input), None when unknown.
        lengths: named lengths that a mean may forget: "batch" -> 4.
    """

    ours: np.ndarray
    expected: np.ndarray
    seeds: Sequence[np.ndarray] = ()
    values: np.ndarray | None = None
    lengths: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ours = self.ours.astype(np.float64)
        self.expected = self.expected.astype(np.float64)
        seeds = [seed.astype(np.float64) for seed in self.seeds]
        self.seeds = [seed for seed in seeds if seed.shape == self.expected.shape]


def explain_gradient(case: GradientCase) -> str:
    """The cause of a wrong gradient of code whose output is right; a guess without one."""
    same = case.ours.shape == case.expected.shape
    if not same or not case.ours.size or not np.isfinite(case.ours).all():
        return ""
    if np.abs(case.expected).max() <= 1e-12 * np.abs(case.ours).max():
        return "PyTorch sends no gradient back here (detach, no_grad); Paddle does"
    near = EXPLAINED * float(np.abs(case.ours - case.expected).max())
    found = first_cause(case.expected, _edits(case), close_to(case.ours, near), TRIALS)
    hint = "" if found else diagnose(case.ours, case.expected, near)
    named = hint and "out of tolerance" not in hint
    return found or (f"its backward pass: the gradient {hint}" if named else UNKNOWN)


def _edits(case: GradientCase) -> Iterator[Edit[np.ndarray]]:
    """The simple ones first: what can be two things is called the simpler one."""
    a, b = case.ours, case.expected
    yield Edit(f"no gradient comes back: {_CUT}", lambda g: 0 * g)
    factor = scale(a, b)
    yield Edit(_scaled(factor, case.lengths), lambda g: factor * g)
    branch = "the gradient through the residual connection is"
    for seed in case.seeds:
        yield Edit(f"{branch} missing: the shortcut is detached", lambda g, s=seed: g - s)
        yield Edit(f"{branch} counted once too often", lambda g, s=seed: g + s)
    for seed in case.seeds:
        yield Edit(_UNCHANGED, lambda g, s=seed: s)
    top = float(np.abs(a).max())
    if (np.abs(a) >= (1 - 1e-9) * top).sum() > 1:
        said = f"the gradient is clipped at {top:.4g} in Paddle"
        yield Edit(said, lambda g: np.clip(g, -top, top))
    open_ = a != 0
    told = f"Paddle sends no gradient back {_where(case.values, ~open_)}, PyTorch does"
    yield Edit(told, lambda g: g * open_)
    shut = (b == 0) & open_
    if not shut.all():
        told = f"PyTorch sends no gradient back {_where(case.values, shut)}, Paddle does"
        yield Edit(told, lambda g: np.where(shut, a, g))


def _scaled(factor: float, lengths: Mapping[str, int]) -> str:
    """A constant factor, by its name where it has one."""
    if abs(factor + 1) < 1e-6:
        return "its backward pass: the gradient has the opposite sign (a gradient reversal)"
    text = f"its backward pass: the gradient is {factor:.3f} x the reference"
    for name, length in lengths.items():
        if length > 1 and abs(factor / length - 1) < 1e-6:
            return f"{text} ({length} is the length of {name}: perhaps a mean is missing, 1/N)"
        if length > 1 and abs(factor * length - 1) < 1e-6:
            return f"{text} (1 / {length}, the length of {name}: perhaps one 1/N is too many)"
    return text


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
