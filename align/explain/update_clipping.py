"""What an optimizer did to its gradients before it used them: scaled or clipped, and at what.

NumPy only. Legend: g = gradient given, e = gradient as the optimizer used it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from align.judge.update_trace import SMALL_STEP, ParameterTrace, SideTrace

ALIKE = 1e-3  # clipping factors this close are equal


@dataclass(frozen=True)
class Clip:
    """What happens to gradients before they are used.

    Attributes:
        kind: "none", "scaled", "global norm", "norm of each group", "norm of each tensor", "value",
            or "" when nothing fits.
        limit: the largest norm or value; of "scaled" the factor.
    """

    kind: str = "none"
    limit: float = 1.0


def slope(y: np.ndarray, x: np.ndarray) -> float:
    """The factor of y = factor x x by least squares."""
    energy = float(np.vdot(x, x))
    return float(np.vdot(y, x)) / energy if energy else 0.0


def clip_of(
    trace: SideTrace,
    traces: Mapping[str, ParameterTrace],
    used: Mapping[str, list[np.ndarray | None]],
    noise: Mapping[str, float] | None = None,
) -> Clip:
    """What was done to the gradients before they were used.

    Args:
        trace: of the side: its groups and global norms.
        traces: the parameters to look at.
        used: name -> gradient that the optimizer used in each step.
        noise: name -> what rounding makes of that gradient; it is not looked at where that is a
            large part of it.
    """
    factors: dict[tuple[int, str], float] = {}
    bent = False
    for name, one in traces.items():
        for step, (g, e) in enumerate(zip(one.gradients, used[name], strict=False)):
            if step == SMALL_STEP or g is None or e is None or not g.any():
                continue  # the small step is below every limit, and lost in rounding in float32
            if noise and noise[name] > ALIKE * np.abs(e).max():
                continue
            factors[step, name] = factor = slope(e.ravel(), g.ravel())
            bent |= bool(np.abs(e - factor * g).max() > ALIKE * np.abs(e).max())
    values = np.array(list(factors.values()))
    if not len(values) or (not bent and np.abs(values - 1).max() <= ALIKE):
        return Clip()
    if bent:
        return _by_value(traces, used)
    if np.ptp(values) <= ALIKE * abs(values.mean()):
        return Clip("scaled", float(values.mean()))
    active = {key: factor for key, factor in factors.items() if factor < 1 - ALIKE}
    for kind, norm in (
        ("global norm", lambda step, name: trace.norms[step]),
        ("norm of each group", lambda step, name: _group_norm(trace, step, name)),
        ("norm of each tensor", lambda step, name: traces[name].norms[step]),
    ):
        limits = [factor * norm(step, name) for (step, name), factor in active.items()]
        if limits and np.ptp(limits) <= ALIKE * max(limits):
            return Clip(kind, float(np.mean(limits)))
    return Clip("", math.nan)


def _group_norm(trace: SideTrace, step: int, name: str) -> float:
    group = trace.groups.get(name)
    members = [t for n, t in trace.main.items() if trace.groups.get(n) == group]
    return math.sqrt(sum(t.norms[step] ** 2 for t in members))


def _by_value(
    traces: Mapping[str, ParameterTrace], used: Mapping[str, list[np.ndarray | None]]
) -> Clip:
    pairs = [
        (g, e)
        for name, one in traces.items()
        for g, e in zip(one.gradients, used[name], strict=False)
        if g is not None and e is not None
    ]
    limit = max(float(np.abs(e).max()) for _, e in pairs)
    if all(np.abs(np.clip(g, -limit, limit) - e).max() <= ALIKE * limit for g, e in pairs):
        return Clip("value", limit)
    return Clip("", math.nan)
