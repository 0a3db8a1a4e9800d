"""PyTorch's update rule in NumPy with one edit: for what no option of an optimizer shows.

The unedited rule has to make PyTorch's own steps; an edit is the cause when it makes Paddle's.

Legend: g = gradient as the optimizer got it, w = weight, m and v = first and second moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from align.explain.experiment import Edit, first_cause
from align.explain.settings import exchange
from align.judge.update_trace import ParameterTrace, SideTrace

NEAR = 1e-5  # of the largest update: what a rule may leave of it
ROOM = 8.0  # units in the last place of a weight that its update is rounded by
TRIALS = 16
Decays = Mapping[str, tuple[float, float]]
"""Parameter -> its decay straight from the weight (AdamW), and added to the gradient (Adam)."""


@dataclass(frozen=True)
class Rule:
    """One optimizer's rule.

    Attributes:
        kind: "Adam", "Momentum", "RMSProp" or "SGD".
        where: epsilon stands "outside" the root, "inside" it, or "before" the bias correction.
        corrected: the moments are corrected for their start at zero.
        rated: the velocity holds the learning rate.
    """

    kind: str
    beta1: float = 0.9
    beta2: float = 0.999
    rho: float = 0.99
    epsilon: float = 1e-8
    where: str = "outside"
    corrected: bool = True
    amsgrad: bool = False
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    rated: bool = False

    def updates(self, trace: ParameterTrace, decay: tuple[float, float]) -> list[np.ndarray]:
        """The update of every step; decay is (straight from the weight, added to the gradient)."""
        w, state, found = trace.weights[0], {}, []
        for g, rate in zip(trace.used, trace.rates, strict=True):
            if g is None:
                found.append(np.zeros_like(w))
                continue
            made = rate * decay[0] * w + self._move(state, g + decay[1] * w, rate)
            found.append(made)
            w = w - found[-1]
        return found

    def _move(self, state: dict[str, Any], g: np.ndarray, rate: float) -> np.ndarray:
        if self.kind == "SGD":
            return rate * g
        if self.kind == "Momentum":
            given = g * rate if self.rated else g
            share = 1 - self.dampening if "velocity" in state else 1.0
            v = state["velocity"] = self.momentum * state.get("velocity", 0.0) + share * given
            return (given + self.momentum * v if self.nesterov else v) * (1 if self.rated else rate)
        if self.kind == "RMSProp":
            v = state["v"] = self.rho * state.get("v", 0.0) + (1 - self.rho) * g * g
            return rate * g / self._root(v, 1.0)
        count = state["count"] = state.get("count", 0) + 1
        m = state["m"] = self.beta1 * state.get("m", 0.0) + (1 - self.beta1) * g
        v = state["v"] = self.beta2 * state.get("v", 0.0) + (1 - self.beta2) * g * g
        if self.amsgrad:
            v = state["largest"] = np.maximum(state.get("largest", 0.0), v)
        if not self.corrected:
            return rate * m / self._root(v, 1.0)
        return rate * m / (1 - self.beta1**count) / self._root(v, 1 - self.beta2**count)

    def _root(self, v: np.ndarray, correction: float) -> np.ndarray:
        if self.where == "inside":
            return np.sqrt(v / correction + self.epsilon)
        if self.where == "before":
            return (np.sqrt(v) + self.epsilon) / math.sqrt(correction)
        return np.sqrt(v / correction) + self.epsilon


EDITS = {
    "Adam": ("corrected", "where", "amsgrad"),
    "RMSProp": ("where",),
    "Momentum": ("nesterov", "rated"),
    "SGD": (),
}
"""Kind -> fields that are turned, each by itself; numbers are options of an optimizer."""
PLACES = ("inside", "before", "outside")
WORDS = {
    "corrected": "bias correction",
    "where": "epsilon's place in the square root",
    "rated": "learning rate inside the velocity",
}


def explain(
    ours: SideTrace,
    reference: SideTrace,
    wrong: Sequence[str],
    rule: Rule | None,
    decays: Decays,
) -> str:
    """The one edit of PyTorch's rule that makes the steps of the wrong parameters, "" for none."""
    names = [n for n in wrong if ours.main[n].held and reference.main[n].held and n in decays]
    moving = [n for n in names if any(g is not None for g in reference.main[n].used)]
    if rule is None or not moving:
        return ""
    left = partial(_left, reference, decays, moving)
    if left(rule, reference) > 1:
        return ""  # PyTorch computes something else: this is not its rule
    return first_cause(rule, _edits(rule), lambda one: left(one, ours) <= 1, TRIALS)


def _left(
    given: SideTrace, decays: Decays, names: Sequence[str], rule: Rule, side: SideTrace
) -> float:
    """What a rule leaves of a side's updates, in units of what it may leave."""
    worst = 0.0
    for name in names:
        own = side.main[name]
        with np.errstate(all="ignore"):
            made = rule.updates(given.main[name], decays[name])
        for step, update in enumerate(made):
            actual = own.update(step)
            room = NEAR * np.abs(actual).max() + ROOM * side.eps * np.abs(own.weights[0]).max()
            apart = float(np.abs(update - actual).max()) / float(room or 1.0)
            worst = max(worst, apart if math.isfinite(apart) else math.inf)
    return worst


def _edits(rule: Rule) -> Iterator[Edit[Rule]]:
    for name in EDITS[rule.kind]:
        held = getattr(rule, name)
        for value in (
            (not held,) if isinstance(held, bool) else (place for place in PLACES if place != held)
        ):
            both = exchange.sentence([(WORDS.get(name, name), value, held)])
            yield Edit(
                f"Paddle's steps are those of PyTorch's formula with one edit: {both}",
                lambda one, name=name, value=value: replace(one, **{name: value}),
            )
