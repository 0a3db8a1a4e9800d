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
        groups: names that are clipped by one norm, of "norm of each group".
    """

    kind: str = "none"
    limit: float = 1.0
    weight: float = 0.0
    groups: tuple[tuple[str, ...], ...] = ()

    def apply(self, gradients: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Whole gradients after it; the weights are not added."""
        norms = {n: float(np.linalg.norm(g.astype(np.float64))) for n, g in gradients.items()}
        whole = [tuple(norms)] if self.kind == "global norm" else self.groups
        for group in whole:
            held = [n for n in group if n in norms]
            norms |= dict.fromkeys(held, math.sqrt(sum(norms[n] ** 2 for n in held)))
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
    read = [
        (name, step, g, e - weight * one.weights[step])
        for name, one in side.main.items()
        for step, (g, e) in enumerate(zip(one.gradients, one.used, strict=False))
        if g is not None and e is not None and g.any() and step != SMALL_STEP
        if ALIKE * np.abs(g).max() > 8 * side.eps * weight * np.abs(one.weights[step]).max()
    ]  # the small step is below every limit, and lost in rounding in float32
    if not read:
        return Treatment()
    factors = [scale(e, g) for *_, g, e in read]
    groups = _groups({(n, s): f for (n, s, *_), f in zip(read, factors, strict=True)})
    group_of = {name: group for group in groups for name in group}
    pairs = []
    for name, step, g, e in read:
        norms = [side.main[n].norms[step] for n in group_of[name]]
        norm = math.sqrt(sum(one**2 for one in norms))
        pairs.append((side.norms[step], side.main[name].norms[step], norm, g, e))
    least = int(np.argmin(factors))
    if factors[least] <= 0:
        return None  # cleared after the step: nothing is left to read
    limits = {
        "none": 1.0,
        "scaled": factors[0],
        "value": max(float(np.abs(e).max()) for *_, e in pairs),
        "global norm": factors[least] * pairs[least][0],
        "norm of each tensor": factors[least] * pairs[least][1],
        "norm of each group": factors[least] * pairs[least][2],
    }
    made = (Treatment(kind, limit, weight, groups) for kind, limit in limits.items())
    return next((one for one in made if _fits(one, pairs)), None)


def _groups(factors: Mapping[tuple[str, int], float]) -> tuple[tuple[str, ...], ...]:
    """Names whose gradients have one factor in each step, by (name, step)."""
    found: list[dict[int, float]] = []
    groups: list[tuple[str, ...]] = []
    for name in dict.fromkeys(name for name, _ in factors):
        own = {step: factor for (n, step), factor in factors.items() if n == name}
        for i, known in enumerate(found):
            if all(abs(known.get(s, f) - f) <= ALIKE * abs(f) for s, f in own.items()):
                groups[i], found[i] = (*groups[i], name), {**own, **known}
                break
        else:
            found.append(own)
            groups.append((name,))
    return tuple(groups)


def _weight(side: SideTrace) -> float:
    """How much of the weights hooks add to a gradient of zero."""
    found = [
        scale(one.used[0], one.weights[0])
        for one in side.still.values()
        if one.used and one.used[0] is not None and one.used[0].any()
    ]
    return float(np.median(found)) if found else 0.0


def _fits(treatment: Treatment, pairs: list[tuple]) -> bool:
    at = {"global norm": 0, "norm of each group": 2}.get(treatment.kind, 1)
    return all(
        np.abs(treatment.of(pair[3], pair[at]) - pair[4]).max() <= ALIKE * np.abs(pair[4]).max()
        for pair in pairs
    )
