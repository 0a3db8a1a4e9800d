"""One optimizer's rule read off its own steps: coefficients fitted, none looked up. NumPy only.

The moments say what went into them, so each relation is fitted by itself: the decay from the step
without gradients, the betas and the clipping from the moments, epsilon and the bias correction from
the update that the observed moments make.

Legend: g = gradient given, e = gradient as the optimizer used it, m and v = first and second
moment, u = update (weight before minus weight after), r = rate, w = weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from align.explain.rate_shapes import golden
from align.explain.update_clipping import Clip, clip_of, slope
from align.judge.update_trace import SMALL_STEP, ParameterTrace, SideTrace

POOL = 20_000  # elements that a fit uses at most
NEAR = 1e-3  # what tells one form from another
FIRST = {"Adam": "moment1", "momentum": "velocity"}  # kind -> the moment that sums gradients

Traces = Mapping[str, ParameterTrace]
Gradients = Mapping[str, list[np.ndarray | None]]


@dataclass(frozen=True)
class Decay:
    """Weight decay of one parameter: straight from the weight, or added to the gradient (L2).

    Without moments the two are the same and count as decoupled.
    """

    decoupled: float = 0.0
    l2: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.decoupled + self.l2


@dataclass(frozen=True)
class Pool:
    """Elements of all parameters and steps: what the update must be, and what makes it.

    Attributes:
        target: update / rate, the decoupled decay taken out.
        m, v: first and second moment (RMSProp: the gradient and the mean square).
        largest: the second moment so far.
        correct1, correct2: 1 - beta ** step.
    """

    target: np.ndarray
    m: np.ndarray
    v: np.ndarray
    largest: np.ndarray
    correct1: np.ndarray
    correct2: np.ndarray

    def form(self, corrected: bool, amsgrad: bool, where: str) -> Callable[[float], np.ndarray]:
        """One form of the update, as a function of epsilon; see `Rule`."""
        v = self.largest if amsgrad else self.v
        m = self.m / self.correct1 if corrected else self.m
        correct2 = self.correct2 if corrected else np.ones_like(v)

        def made(eps: float) -> np.ndarray:
            if where == "inside":
                return m / np.sqrt(v / correct2 + eps)
            if where == "before":
                return m * np.sqrt(correct2) / (np.sqrt(v) + eps)
            return m / (np.sqrt(v / correct2) + eps)

        return made


@dataclass(frozen=True)
class Rule:
    """What one optimizer does.

    Attributes:
        kind: "Adam" (two moments), "momentum" (a velocity), "RMSProp" (a mean square) or "plain".
        beta1, beta2: of the moments; beta2 is RMSProp's rho.
        eps: epsilon, and `eps_at` where it stands: "outside" the square root (PyTorch's Adam),
            "inside" it, or "before" the bias correction (Hugging Face's AdamW).
        corrected: the bias of the moments is corrected.
        amsgrad: the largest second moment so far is used.
        momentum, dampening: of the velocity; gradients enter times 1 - dampening.
        averaged: the first gradient is dampened as well.
        nesterov: the update looks ahead.
        rated: the velocity holds rate x gradient.
        left: largest update that the rule does not explain, over the largest update.
        clip: of the gradients.
        pool: the elements that epsilon was fitted on.
    """

    kind: str
    beta1: float = 0.0
    beta2: float = 0.0
    eps: float = 0.0
    eps_at: str = ""
    corrected: bool = True
    amsgrad: bool = False
    momentum: float = 0.0
    dampening: float = 0.0
    averaged: bool = False
    nesterov: bool = False
    rated: bool = False
    left: float = math.inf
    clip: Clip = field(default_factory=Clip)
    pool: Pool | None = field(default=None, repr=False, compare=False)

    def left_by(self, other: Rule) -> float:
        """What this optimizer's updates leave under another one's form and epsilon."""
        if self.pool is None:
            return math.inf
        made = self.pool.form(other.corrected, other.amsgrad, other.eps_at)(other.eps)
        with np.errstate(all="ignore"):
            left = float(np.abs(made - self.pool.target).max() / np.abs(self.pool.target).max())
        return left if math.isfinite(left) else math.inf


def kind_of(trace: SideTrace) -> str:
    """Which moments an optimizer keeps."""
    kinds = {kind for one in trace.main.values() for kind in one.moments}
    if {"moment1", "moment2"} <= kinds:
        return "Adam"
    if "velocity" in kinds:
        return "momentum"
    return "RMSProp" if "mean_square" in kinds else "plain"


def describe(trace: SideTrace, names: Sequence[str]) -> tuple[Rule, dict[str, Decay | None]]:
    """The rule behind the updates of some parameters, and the decay of each.

    Args:
        trace: of one side.
        names: parameters that share a rule.

    Returns:
        The rule, whose `left` says how well it explains the updates, and name -> decay, None where
        the step without gradients says nothing about it.
    """
    kind = kind_of(trace)
    traces = {n: trace.main[n] for n in names if n in trace.main and trace.main[n].held}
    moving = {n: t for n, t in traces.items() if any(g is not None for g in t.gradients)}
    entering = {n: _entering(trace.still[n], kind) for n in traces}
    keep, share = (0.0, 1.0) if kind not in FIRST else _first_moment(moving, entering, kind)
    decays = {n: decay_of(trace.still[n], kind, keep, entering[n], trace.eps) for n in traces}
    known = {n: decays[n] or Decay() for n in moving}
    if not moving:
        return Rule(kind), decays
    if kind == "Adam":
        return _adam(trace, moving, known, entering, keep), decays
    if kind == "momentum":
        return _momentum(trace, moving, known, keep, share), decays
    if kind == "RMSProp":
        return _rms_prop(moving, known), decays
    used = {n: _plain(t, known[n]) for n, t in moving.items()}
    noise = {n: 4 * trace.eps * float(np.abs(t.weights[0]).max()) for n, t in moving.items()}
    clip = clip_of(trace, moving, used, {n: v / max(traces[n].rates) for n, v in noise.items()})
    return Rule(kind, clip=clip, left=0.0 if clip.kind else math.inf), decays


def _entering(still: ParameterTrace, kind: str) -> float:
    """What part of a weight enters the first moment in a step without gradients (L2 decay)."""
    first = still.moment(FIRST.get(kind, ""), 0)
    return 0.0 if first is None else slope(first, still.weights[0])


def decay_of(
    still: ParameterTrace, kind: str, beta1: float, entering: float, eps: float
) -> Decay | None:
    """The decay of a parameter, from a first step with zero gradients.

    Args:
        still: that step.
        kind: of the optimizer, see `kind_of`.
        beta1: of Adam.
        entering: part of the weight that enters the first moment.
        eps: unit in the last place: an update is rounded as the weight.

    Returns:
        None when nothing can be said: no rate, zero weights, or an update that is no decay.
    """
    rate, w = still.rates[0], still.weights[0].ravel()
    if not rate > 0 or not w.any():
        return None
    u = still.update(0).ravel() / rate
    if not entering:
        found = Decay(slope(u, w))
        near = NEAR * float(np.abs(u).max()) + 4 * eps * float(np.abs(w).max()) / rate
        return found if np.abs(u - found.total * w).max() <= near else None
    if kind == "momentum":
        return Decay(0.0, entering)
    l2 = entering / (1 - beta1) if beta1 < 1 else 0.0
    kept = np.abs(w) > 0.1 * np.abs(w).max()
    u, w = u[kept], w[kept]
    rest = u - np.sign(w)  # L2 through Adam's moments moves every weight by one rate,
    columns = [w] if len(w) < 3 else [w, 1 / w]  # less epsilon over the decayed weight
    found = _regress(columns, rest)
    left = rest - sum(c * x for c, x in zip(found, columns, strict=True))
    straight = np.abs(left).max() <= 0.05 * np.abs(rest).max()
    return Decay(found[0] if straight and abs(found[0]) > 0.02 * abs(l2) else 0.0, l2)


def _pairs(traces: Traces, kind: str, step: int) -> Iterator[tuple]:
    """(name, trace, gradient, moment before, moment after) where all of them are there."""
    for name, trace in traces.items():
        g, new = trace.gradients[step], trace.moment(kind, step)
        old = trace.moment(kind, step - 1) if step else None
        old = np.zeros_like(new) if old is None and new is not None and not step else old
        if g is not None and old is not None and new is not None:
            yield name, trace, g.ravel(), old.ravel(), new.ravel()


def _regress(columns: Sequence[np.ndarray], after: np.ndarray) -> list[float]:
    """Least squares with columns of very different size."""
    table = np.stack(columns, axis=1)
    sizes = np.abs(table).max(axis=0)
    sizes[sizes == 0] = 1.0
    return (np.linalg.lstsq(table / sizes, after, rcond=None)[0] / sizes).tolist()


def _first_moment(traces: Traces, entering: Mapping[str, float], kind: str) -> tuple[float, float]:
    """Factors of the old moment and of the gradient in the new moment: (beta1, 1 - beta1) of Adam,
    (momentum, 1 - dampening) of a velocity."""
    rows = []
    for name, trace, g, old, new in _pairs(traces, FIRST[kind], SMALL_STEP):
        decayed = entering[name] * trace.weights[SMALL_STEP].ravel()
        rows.append((old, g, new - decayed) if kind == "Adam" else (old, g + decayed, new))
    if not rows:
        return 0.0, 1.0
    old, g, new = (np.concatenate(part) for part in zip(*rows, strict=True))
    keep, share = _regress([old, g], new)
    return keep, share


def _plain(trace: ParameterTrace, decay: Decay) -> list[np.ndarray | None]:
    return [
        None if g is None or not rate else trace.update(i) / rate - decay.total * trace.weights[i]
        for i, (g, rate) in enumerate(zip(trace.gradients, trace.rates, strict=True))
    ]


def thinned(array: np.ndarray) -> np.ndarray:
    """At most POOL rows, evenly taken."""
    return array[:: max(1, -(-len(array) // POOL))]


def _adam(
    trace: SideTrace,
    traces: Traces,
    decays: Mapping[str, Decay],
    entering: Mapping[str, float],
    beta1: float,
) -> Rule:
    used = {
        name: [
            None if g is None else (new - beta1 * old - entering[name] * w) / (1 - beta1)
            for g, old, new, w in _history(one, "moment1")
        ]
        for name, one in traces.items()
    }
    whole = {
        name: [
            None if e is None else e + entering[name] / (1 - beta1) * w
            for e, w in zip(held, traces[name].weights, strict=False)
        ]
        for name, held in used.items()
    }
    beta2 = _second(traces, whole, "moment2")
    pool = _pooled(traces, decays, beta1, beta2)
    best = Rule("Adam", beta1, beta2, clip=clip_of(trace, traces, used), pool=pool)
    if pool is None:
        return best
    for corrected in (True, False):
        for amsgrad in (False, True):
            for where in ("outside", "inside", "before") if corrected else ("outside", "inside"):
                made = pool.form(corrected, amsgrad, where)
                eps, left = fitted_epsilon(made, pool.target)
                if left < 0.1 * best.left:
                    best = replace(
                        best,
                        eps=eps,
                        eps_at=where,
                        corrected=corrected,
                        amsgrad=amsgrad,
                        left=left,
                    )
    return best


def _history(trace: ParameterTrace, kind: str) -> Iterator[tuple]:
    """(gradient, moment before, moment after, weight) of every step; the first moment is zero."""
    old = np.zeros_like(trace.weights[0])
    for step, g in enumerate(trace.gradients):
        new = trace.moment(kind, step)
        yield (g if new is not None else None), old, new, trace.weights[step]
        old = old if new is None else new


def _second(traces: Traces, used: Gradients, kind: str) -> float:
    """The factor of the old second moment in the new one."""
    rows = [
        (old, used[name][SMALL_STEP].ravel() ** 2, new)
        for name, _, _, old, new in _pairs(traces, kind, SMALL_STEP)
        if used[name][SMALL_STEP] is not None
    ]
    if not rows:
        return 0.0
    old, square, new = (np.concatenate(part) for part in zip(*rows, strict=True))
    return _regress([old, square], new)[0]


def _pooled(traces: Traces, decays: Mapping[str, Decay], beta1: float, beta2: float) -> Pool | None:
    parts: list[np.ndarray] = []
    for name, trace in traces.items():
        count, largest = 0, np.zeros_like(trace.weights[0])
        for step, (g, _, m, w) in enumerate(_history(trace, "moment1")):
            v = trace.moment("moment2", step)
            if g is None or v is None:
                continue
            count += 1
            largest = np.maximum(largest, v)
            if not trace.rates[step]:
                continue
            target = trace.update(step) / trace.rates[step] - decays[name].decoupled * w
            powers = [np.full(m.shape, 1 - beta**count) for beta in (beta1, beta2)]
            rows = [target, m, v, largest, *powers]
            parts.append(np.stack([row.ravel() for row in rows], axis=1))
    if not parts:
        return None
    table = thinned(np.concatenate(parts))
    table = table[(table[:, 1] != 0) & (table[:, 2] > 0) & (table[:, 4:] > 0).all(axis=1)]
    return Pool(*table.T) if len(table) else None


def fitted_epsilon(made: Callable[[float], np.ndarray], target: np.ndarray) -> tuple[float, float]:
    """The epsilon for which an update comes out right.

    Args:
        made: from epsilon to the update.
        target: (n,) the update that was made.

    Returns:
        (epsilon, largest error over the largest update).
    """

    def error(log: float) -> float:
        return float(((made(10.0**log) - target) ** 2).sum())

    size = float(np.abs(target).max()) or 1.0
    logs = np.linspace(-20, 0, 81)
    with np.errstate(all="ignore"):
        start = float(logs[int(np.argmin([error(log) for log in logs]))])
        eps = 10.0 ** golden(error, start - 0.25, start + 0.25)
        left = float(np.abs(made(eps) - target).max()) / size
    return eps, left if math.isfinite(left) else math.inf


def _momentum(
    trace: SideTrace, traces: Traces, decays: Mapping[str, Decay], keep: float, share: float
) -> Rule:
    rule = _convention(traces, decays, keep, share)
    used = {
        name: [
            None
            if g is None
            else (new - keep * old) / _entry(rule, step, share) - decays[name].l2 * w
            for step, (g, old, new, w) in enumerate(_history(one, "velocity"))
        ]
        for name, one in traces.items()
    }
    rule = replace(rule, clip=clip_of(trace, traces, used))
    best = rule
    for nesterov in (False, True):
        top = error = 0.0
        for name, one in traces.items():
            for step, e in enumerate(used[name]):
                rate = 1.0 if rule.rated else one.rates[step]
                if e is None or not rate:
                    continue
                velocity = one.moments["velocity"][step]
                u = one.update(step) / rate - decays[name].decoupled * one.weights[step]
                ahead = e + decays[name].l2 * one.weights[step] + keep * velocity
                made = ahead if nesterov else velocity
                top = max(top, float(np.abs(u).max()))
                error = max(error, float(np.abs(made - u).max()))
        left = error / top if top else math.inf
        if left < 0.1 * best.left:
            best = replace(rule, nesterov=nesterov, left=left)
    return best


def _entry(rule: Rule, step: int, share: float) -> float:
    """What the gradient of a step is multiplied by when it enters the velocity."""
    if rule.rated or rule.averaged:
        return share
    return 1.0 if step == 0 else 1.0 - rule.dampening


def _convention(traces: Traces, decays: Mapping[str, Decay], keep: float, share: float) -> Rule:
    """How gradients enter the velocity."""
    rule = Rule("momentum", momentum=keep)
    if abs(share - 1) < NEAR:
        return rule
    rows = [
        (g + decays[name].l2 * trace.weights[0].ravel(), new)
        for name, trace, g, _, new in _pairs(traces, "velocity", 0)
    ]
    given, velocity = (np.concatenate(part) for part in zip(*rows, strict=True))
    first = slope(velocity, given)
    rates = {one.rates[0] for one in traces.values()}
    if abs(first - share) < NEAR * abs(share):
        if len(rates) == 1 and abs(share / rates.pop() - 1) < NEAR:
            return replace(rule, rated=True)
        if abs(share - (1 - keep)) < NEAR:
            return replace(rule, dampening=keep, averaged=True)
        return rule  # the gradient itself is scaled
    return replace(rule, dampening=1 - share)


def _rms_prop(traces: Traces, decays: Mapping[str, Decay]) -> Rule:
    given = {
        n: [
            None if g is None else g + decays[n].total * t.weights[i]
            for i, g in enumerate(t.gradients)
        ]
        for n, t in traces.items()
    }
    best = Rule("RMSProp", beta2=_second(traces, given, "mean_square"))
    parts = [
        np.stack([(one.update(i) / one.rates[i]).ravel(), g.ravel(), v.ravel()])
        for name, one in traces.items()
        for i, g in enumerate(given[name])
        if g is not None and one.rates[i]
        if (v := one.moment("mean_square", i)) is not None
    ]
    if not parts:
        return best
    target, g, v = thinned(np.concatenate(parts, axis=1).T).T
    pool = Pool(target, g, v, v, np.ones_like(v), np.ones_like(v))
    best = replace(best, corrected=False, pool=pool)
    for where in ("outside", "inside"):
        eps, left = fitted_epsilon(pool.form(False, False, where), target)
        if left < 0.1 * best.left:
            best = replace(best, eps=eps, eps_at=where, left=left)
    return best
