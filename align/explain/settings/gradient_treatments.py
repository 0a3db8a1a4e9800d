"""What happens to gradients between the backward pass and the update: scaled, clipped. NumPy only.

Legend: g = gradient given, e = gradient after the hooks of the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.explain.settings.exchange import both, number
from align.judge.update_trace import SMALL_STEP, SideTrace

ALIKE = 1e-3  # factors this close are equal


@dataclass(frozen=True)
class Treatment:
    """One thing done to gradients.

    Attributes:
        kind: "none", "scaled", "value", "global norm", "norm of each tensor" or "norm of each
            group".
        limit: the largest value or norm; of "scaled" the factor.
        weight: multiple of the weight that is added.
    """

    kind: str = "none"
    limit: float = 1.0
    weight: float = 0.0

    def apply(self, gradients: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Whole gradients after it; the weights are not added."""
        if self.kind == "value":
            return {n: np.clip(g, -self.limit, self.limit) for n, g in gradients.items()}
        norms = {n: float(np.linalg.norm(g.astype(np.float64))) for n, g in gradients.items()}
        if self.kind == "global norm":
            norms = dict.fromkeys(norms, math.sqrt(sum(norm**2 for norm in norms.values())))
        return {n: g * self.factor(norms[n]) for n, g in gradients.items()}

    def factor(self, norm: float) -> float:
        """What a gradient is multiplied by that is clipped by this norm."""
        if self.kind in ("none", "scaled"):
            return self.limit
        return self.limit / max(self.limit, norm)

    def __str__(self) -> str:
        if self.kind == "none":
            text = "leaves gradients as they are"
        elif self.kind == "scaled":
            text = f"scales gradients by {number(self.limit)}"
        else:
            text = f"clips the {self.kind} at {number(round_off(self.limit))}"
        more = f" and adds {number(self.weight)} x the weight (weight decay)"
        return text + (more if self.weight else "")


def round_off(value: float) -> float:
    """A measured number without the digits that measuring leaves: five are good."""
    return float(f"{value:.5g}")


def slope(y: np.ndarray, x: np.ndarray) -> float:
    """The factor of y = factor x x by least squares."""
    energy = float(np.vdot(x, x))
    return float(np.vdot(y, x)) / energy if energy else 0.0


def sentence(a: Treatment, b: Treatment) -> str:
    """What differs between Paddle's and PyTorch's."""
    if a.kind == b.kind and a.limit != b.limit and a.kind != "scaled":
        return f"clipping limit ({a.kind}): {both(round_off(a.limit), round_off(b.limit))}"
    title = "before the update"
    if "none" in (a.kind, b.kind) and "scaled" not in (a.kind, b.kind):
        title = "clipping missing" if a.kind == "none" else "clipping in Paddle only"
    title = "double decay" if a.weight else title
    return f"{title}: Paddle {a}, PyTorch {b}"


def treatment_of(side: SideTrace) -> Treatment | None:
    """What hooks did to the gradients of one side; None when no treatment fits.

    Args:
        side: with the gradients given and used.
    """
    weight = _weight(side)
    pairs = [
        (step, name, g, e - weight * one.weights[step])
        for name, one in side.main.items()
        for step, (g, e) in enumerate(zip(one.gradients, one.used, strict=False))
        if g is not None and e is not None and g.any() and step != SMALL_STEP
        if ALIKE * np.abs(g).max() > 8 * side.eps * weight * np.abs(one.weights[step]).max()
    ]  # the small step is below every limit, and lost in rounding in float32
    return next((one for one in _candidates(side, pairs, weight) if _fits(side, one, pairs)), None)


def _candidates(side: SideTrace, pairs: list[tuple], weight: float) -> list[Treatment]:
    """One of each kind, with its number from the largest gradient."""
    if not pairs:
        return [Treatment()]
    factors = [(slope(e.ravel(), g.ravel()), step, name) for step, name, g, e in pairs]
    factor, step, name = min(factors)
    if factor <= 0:
        return []  # cleared after the step: nothing is left to read
    largest = max(float(np.abs(e).max()) for *_, e in pairs)
    return [
        Treatment("none", 1.0, weight),
        Treatment("scaled", factors[0][0], weight),
        Treatment("value", largest, weight),
        Treatment("global norm", factor * side.norms[step], weight),
        Treatment("norm of each tensor", factor * side.main[name].norms[step], weight),
    ]


def _weight(side: SideTrace) -> float:
    """How much of the weights hooks add to a gradient of zero."""
    found = [
        slope(one.used[0], one.weights[0])
        for one in side.still.values()
        if one.used and one.used[0] is not None and one.used[0].any()
    ]
    return float(np.median(found)) if found else 0.0


def _fits(side: SideTrace, treatment: Treatment, pairs: list[tuple]) -> bool:
    for step, name, g, e in pairs:
        norm = side.norms[step] if treatment.kind == "global norm" else side.main[name].norms[step]
        if treatment.kind == "value":
            made = np.clip(g, -treatment.limit, treatment.limit)
        else:
            made = g * treatment.factor(norm)
        if np.abs(made - e).max() > ALIKE * np.abs(e).max():
            return False
    return True
