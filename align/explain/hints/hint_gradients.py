"""What a wrong gradient looks like, from the gradients at both ends of a layer.

Each test names a slip only when it explains the difference (1 % of it may remain).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.explain.formulas import close
from align.judge.diagnosis import diagnose

EXPLAINED = 0.01
_CUT = (
    "the graph is cut there (detach, stop_gradient, no_grad, or an operator without a gradient "
    "such as diag_embed)"
)
_PARTLY = (
    "the forward pass is right and the gradient is not: a part of the graph is cut on one side "
    "(detach, stop_gradient, an operator without a gradient such as diag_embed), or a backward "
    "pass of its own (PyLayer) is wrong"
)


@dataclass
class GradientCase:
    """One wrong gradient.

    Attributes:
        ours: Paddle's gradient, of the shape of `expected`.
        expected: PyTorch's.
        seeds: gradients that arrive at the outputs of the same code, the reference's.
        values: the tensors whose gradient this is (the layer's input), None when unknown.
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
        self.seeds = [seed.astype(np.float64) for seed in self.seeds]

    @property
    def near(self) -> float:
        """How far an explanation may be from the difference."""
        return EXPLAINED * float(np.abs(self.ours - self.expected).max(initial=0.0))

    @property
    def zero(self) -> float:
        """What counts as no gradient."""
        sizes = [np.abs(a).max(initial=0.0) for a in (self.ours, self.expected, *self.seeds)]
        return 1e-12 * float(max(sizes))


def explain_gradient(case: GradientCase) -> str:
    """The likely cause of a wrong gradient of code whose output is right.

    Args:
        case: both gradients.

    Returns:
        A sentence; when no signature fits, what alone can be wrong then. "" for shapes that differ.
    """
    same = case.ours.shape == case.expected.shape
    if not same or not case.ours.size or not np.isfinite(case.ours).all():
        return ""
    with np.errstate(all="ignore"):
        for test in TESTS:
            text = test(case)
            if text:
                return text
    hint = diagnose(case.ours, case.expected, case.near)
    if hint and "out of tolerance" not in hint:
        return f"its backward pass: the gradient {hint}"
    return _PARTLY


def _cut(case: GradientCase) -> str:
    """No gradient on one side."""
    if np.abs(case.expected).max() <= case.zero < np.abs(case.ours).max():
        return "PyTorch sends no gradient back here (detach, no_grad); Paddle does"
    if np.abs(case.ours).max() > case.zero:
        return ""
    for seed in case.seeds:
        if close(seed, case.expected, case.near):
            return f"a straight-through estimator in PyTorch; in Paddle no gradient: {_CUT}"
    return f"no gradient comes back: {_CUT}"


def _straight_through(case: GradientCase) -> str:
    """The output's gradient handed on unchanged, on one side only."""
    still = np.abs(case.ours) <= case.zero
    for seed in case.seeds:
        if close(seed, case.ours, case.near):
            return (
                "straight-through: Paddle hands the gradient of the output on unchanged, PyTorch "
                "does not"
            )
        passed = close(seed, case.expected, case.near) and still.any()
        if passed and close(case.ours[~still], seed[~still], case.near):
            return (
                "straight-through: PyTorch hands the gradient of the output on unchanged, Paddle "
                f"blocks it for {_share(still)}"
            )
    return ""


def _branch(case: GradientCase) -> str:
    """The gradient of a residual connection missing, or counted twice."""
    missing = case.expected - case.ours
    for seed in case.seeds:
        if close(seed, missing, case.near):
            return (
                "the gradient through the residual connection is missing: the shortcut is detached"
            )
        if close(-seed, missing, case.near):
            return "the gradient through the residual connection is counted once too often"
    return ""


def _scaled(case: GradientCase) -> str:
    """A constant factor, by its name where it has one."""
    energy = float(np.vdot(case.expected, case.expected))
    if not energy:
        return ""
    factor = float(np.vdot(case.expected, case.ours)) / energy
    if not factor or not close(case.ours, factor * case.expected, case.near):
        return ""
    if abs(factor + 1) < 1e-6:
        return "its backward pass: the gradient has the opposite sign (a gradient reversal?)"
    text = f"its backward pass: the gradient is {factor:.3f} x the reference"
    for name, length in case.lengths.items():
        if length > 1 and abs(factor / length - 1) < 1e-6:
            return f"{text} ({length} is the length of {name}: is a division by N missing, 1/N?)"
        if length > 1 and abs(factor * length - 1) < 1e-6:
            return f"{text} (1 / {length}, the length of {name}: is one 1/N too many?)"
    return text


def _blocked(case: GradientCase) -> str:
    """Zero in part of the elements where PyTorch's is not, or the other way round."""
    for blocked, open_, side, other in (
        (case.ours, case.expected, "Paddle", "PyTorch"),
        (case.expected, case.ours, "PyTorch", "Paddle"),
    ):
        still = (np.abs(blocked) <= case.zero) & (np.abs(open_) > case.zero)
        rest = ~still
        if not still.any() or not close(blocked[rest], open_[rest], case.near):
            continue
        if case.values is None or case.values.shape != still.shape:
            return f"{side} sends no gradient back for {_share(still)}, {other} does (a clip?)"
        place = _where(case.values, still)
        return f"{side} sends no gradient back {place} ({_share(still)}), {other} does"
    return ""


def _share(still: np.ndarray) -> str:
    return f"{int(still.sum())} of {still.size} elements"


def _where(values: np.ndarray, still: np.ndarray) -> str:
    """Which inputs get no gradient, in words."""
    held, rest = values[still], values[~still]
    if held.max() <= 0:
        return "where the input is negative (a ReLU?)"
    if rest.size and held.min() > rest.max():
        return f"where the input is above {rest.max():.4g} (a clip?)"
    if rest.size and held.max() < rest.min():
        return f"where the input is below {rest.min():.4g} (a clip?)"
    if rest.size and np.abs(held).min() > np.abs(rest).max():
        return f"where the input's size is above {np.abs(rest).max():.4g} (a clip?)"
    return "in some places"


def _clipped(case: GradientCase) -> str:
    """PyTorch's gradient, clipped by value or by norm."""
    top = float(np.abs(case.ours).max())
    at_top = np.abs(np.abs(case.ours) - top) <= 1e-9 * top
    if at_top.sum() > 1 and close(np.clip(case.expected, -top, top), case.ours, case.near):
        return f"the gradient is clipped at {top:.4g} in Paddle"
    return ""


TESTS: tuple[Callable[[GradientCase], str], ...] = (
    _cut,
    _scaled,
    _branch,
    _straight_through,
    _clipped,
    _blocked,
)
"""In this order: what can be two things is called the simpler one."""
