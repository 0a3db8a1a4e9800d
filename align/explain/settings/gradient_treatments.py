"""What happens to gradients between the backward pass and the update: scaled, clipped. NumPy only.

Legend: g = gradient given, e = gradient after the hooks of the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.explain.experiment import scale
from align.explain.settings.exchange import both, number
from align.judge.update_judging import SMALL_STEP, SideTrace

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
        norms = {n: float(np.linalg.norm(g.astype(np.float64))) for n, g in gradients.items()}
        if self.kind == "global norm":
            norms = dict.fromkeys(norms, math.sqrt(sum(norm**2 for norm in norms.values())))
        return {n: self.of(g, norms[n]) for n, g in gradients.items()}

    def of(self, gradient: np.ndarray, norm: float) -> np.ndarray:
        """One gradient after it, of which the norm is known that it may be clipped by."""
        if self.kind == "value":
            return np.clip(gradient, -self.limit, self.limit)
        clipped = self.kind not in ("none", "scaled")
        return gradient * (self.limit / max(self.limit, norm) if clipped else self.limit)

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
    """What hooks did to the gradients of one side; None when no treatment fits."""
    weight = _weight(side)
    pairs = [
        (side.norms[step], one.norms[step], g, e - weight * one.weights[step])
        for one in side.main.values()
        for step, (g, e) in enumerate(zip(one.gradients, one.used, strict=False))
        if g is not None and e is not None and g.any() and step != SMALL_STEP
        if ALIKE * np.abs(g).max() > 8 * side.eps * weight * np.abs(one.weights[step]).max()
    ]  # the small step is below every limit, and lost in rounding in float32
    if not pairs:
        return Treatment()
    factors = [scale(e, g) for *_, g, e in pairs]
    least = int(np.argmin(factors))
    if factors[least] <= 0:
        return None  # cleared after the step: nothing is left to read
    limits = {
        "none": 1.0,
        "scaled": factors[0],
        "value": max(float(np.abs(e).max()) for *_, e in pairs),
        "global norm": factors[least] * pairs[least][0],
        "norm of each tensor": factors[least] * pairs[least][1],
    }
    made = (Treatment(kind, limit, weight) for kind, limit in limits.items())
    return next((one for one in made if _fits(one, pairs)), None)


def _weight(side: SideTrace) -> float:
    """How much of the weights hooks add to a gradient of zero."""
    found = [
        scale(one.used[0], one.weights[0])
        for one in side.still.values()
        if one.used and one.used[0] is not None and one.used[0].any()
    ]
    return float(np.median(found)) if found else 0.0


def _fits(treatment: Treatment, pairs: list[tuple]) -> bool:
    at = 0 if treatment.kind == "global norm" else 1
    return all(
        np.abs(treatment.of(pair[2], pair[at]) - pair[3]).max() <= ALIKE * np.abs(pair[3]).max()
        for pair in pairs
    )
