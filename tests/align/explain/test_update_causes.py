"""From two followed optimizers to the setting that differs: optimizers written in NumPy here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from align.explain.update_causes import explain
from align.judge.update_trace import ParameterTrace, SideTrace

SHAPES = {"fc.weight": (6, 5), "fc.bias": (6,), "head.weight": (9, 4)}
SCALES = (1.0, 1e-3, 1e4)  # as `Feed` draws them: recorded, small, large
RATE = 1e-3


@dataclass(frozen=True)
class Settings:
    """Of an optimizer of PyTorch, and of what people get wrong in it."""

    kind: str = "adam"
    rate: float = RATE
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    where: str = "outside"
    corrected: bool = True
    amsgrad: bool = False
    decay: float = 0.01
    l2: float = 0.0
    undecayed: tuple[str, ...] = ()
    momentum: float = 0.9
    dampening: float = 0.0
    averaged: bool = False
    nesterov: bool = False
    rated: bool = False
    clip: str = ""
    limit: float = 1.0
    scale: float = 1.0
    head: float = 1.0  # factor of the head's rate, unknown to the recorded rates
    group_rate: float = 1.0  # factor of the head's rate, recorded
    missing: tuple[str, ...] = ()
    zeros: bool = False  # a parameter without a gradient is stepped with zeros


ADAM = Settings()
SGD = Settings(kind="sgd", decay=0.0)
MOMENTUM = Settings(kind="momentum", decay=0.0)
RMS = Settings(kind="rms", decay=0.0)


def gradients(seed: int) -> list[dict[str, np.ndarray | None]]:
    rng = np.random.default_rng(seed)
    spread = {n: 10.0 ** -rng.uniform(0, 9, s) * (rng.random(s) > 0.1) for n, s in SHAPES.items()}
    spread["head.weight"] = np.where(rng.random((9, 4)) < 0.5, 1.0, spread["head.weight"])
    found = [
        {n: scale * spread[n] * rng.normal(size=s) for n, s in SHAPES.items()} for scale in SCALES
    ]
    found[1]["fc.bias"] = None
    return found


def follow(settings: Settings, seed: int = 0) -> SideTrace:
    """What `Follower` records of such an optimizer."""
    rng = np.random.default_rng((seed, 1))
    weights = {n: rng.normal(size=s) for n, s in SHAPES.items()}
    zeros = [{n: np.zeros(s) for n, s in SHAPES.items()}]
    drawn = gradients(seed)
    groups = {"fc.weight": 0, "fc.bias": 0, "head.weight": 1}
    found = SideTrace(groups={n: i for n, i in groups.items() if n not in settings.missing})
    found.still = run(settings, weights, zeros, groups)
    found.main = run(settings, weights, drawn, groups)
    found.norms = [math.sqrt(sum(norm(g) ** 2 for g in step.values())) for step in drawn]
    found.clipped = [1.0] * len(drawn)
    return found


def norm(gradient: np.ndarray | None) -> float:
    return 0.0 if gradient is None else float(np.linalg.norm(gradient))


def run(settings, weights, steps, groups) -> dict[str, ParameterTrace]:
    traces = {n: ParameterTrace([w]) for n, w in weights.items()}
    held = {n: {} for n in weights}
    for given in steps:
        used = clipped(settings, given, groups)
        for name, trace in traces.items():
            g, w = used[name], trace.weights[-1]
            if g is None and settings.zeros:
                g = np.zeros_like(w)
            rate = settings.rate * (settings.group_rate if groups[name] else 1.0)
            member = name not in settings.missing
            moved = g is not None and member
            update = move(settings, name, held[name], g, w, rate) if moved else 0.0 * w
            trace.weights.append(w - update * (settings.head if groups[name] else 1.0))
            trace.gradients.append(given[name])
            trace.norms.append(norm(given[name]))
            trace.rates.append(rate if member else math.nan)
            for kind in ("moment1", "moment2", "velocity", "mean_square"):
                if kind in held[name]:
                    trace.moments.setdefault(kind, []).append(held[name][kind].copy())
    return traces


def clipped(settings, given, groups):
    used = {n: None if g is None else settings.scale * g for n, g in given.items()}
    norms = {n: norm(g) for n, g in used.items()}
    if settings.clip == "value":
        limit = settings.limit
        return {n: None if g is None else np.clip(g, -limit, limit) for n, g in used.items()}

    def over(name):
        if settings.clip == "global":
            return math.sqrt(sum(v**2 for v in norms.values()))
        if settings.clip == "group":
            members = (n for n in norms if groups[n] == groups[name])
            return math.sqrt(sum(norms[n] ** 2 for n in members))
        return norms[name] if settings.clip else 0.0

    return {
        n: None if g is None else g * settings.limit / max(settings.limit, over(n))
        for n, g in used.items()
    }


def move(settings, name, state, g, w, rate):
    """The update of one parameter; its moments are kept in `state`."""
    decays = name not in settings.undecayed
    g = g + settings.l2 * decays * w
    straight = rate * settings.decay * decays * w
    if settings.kind == "sgd":
        return rate * g + straight
    if settings.kind == "momentum":
        share = 1 - settings.dampening
        if "velocity" not in state:
            state["velocity"] = g * (share if settings.averaged else 1.0)
            state["velocity"] = state["velocity"] * (rate if settings.rated else 1.0)
        else:
            entering = share * g * (rate if settings.rated else 1.0)
            state["velocity"] = settings.momentum * state["velocity"] + entering
        ahead = g + settings.momentum * state["velocity"]
        update = ahead if settings.nesterov else state["velocity"]
        return (1.0 if settings.rated else rate) * update + straight
    b1, b2, eps = settings.beta1, settings.beta2, settings.eps
    if settings.kind == "rms":
        v = state["mean_square"] = b2 * state.get("mean_square", 0) + (1 - b2) * g * g
        return rate * g / (np.sqrt(v) + eps if settings.where == "outside" else np.sqrt(v + eps))
    count = state["count"] = state.get("count", 0) + 1
    m = state["moment1"] = b1 * state.get("moment1", 0) + (1 - b1) * g
    v = state["moment2"] = b2 * state.get("moment2", 0) + (1 - b2) * g * g
    largest = state["largest"] = np.maximum(state.get("largest", 0), v)
    v = largest if settings.amsgrad else v
    c1, c2 = (1 - b1**count, 1 - b2**count) if settings.corrected else (1.0, 1.0)
    if settings.where == "before":
        return rate * m / c1 * math.sqrt(c2) / (np.sqrt(v) + eps) + straight
    inside = settings.where == "inside"
    root = np.sqrt(v / c2 + eps) if inside else np.sqrt(v / c2) + eps
    return rate * m / c1 / root + straight


def named(ours: Settings, reference: Settings, seed: int = 0) -> list:
    mine, theirs = follow(ours, seed), follow(reference, seed)
    wrong = [n for n in SHAPES if not same(mine, theirs, n)]
    return explain(mine, theirs, wrong)


def same(ours: SideTrace, reference: SideTrace, name: str) -> bool:
    """Whether rates, weights and moments of a parameter agree."""
    pairs = [(getattr(ours, p)[name], getattr(reference, p)[name]) for p in ("main", "still")]
    lists = [(a.weights, b.weights) for a, b in pairs] + [([a.rates], [b.rates]) for a, b in pairs]
    kinds = set(pairs[0][0].moments) & set(pairs[0][1].moments)
    lists += [(pairs[0][0].moments[k], pairs[0][1].moments[k]) for k in kinds]
    return all(
        np.allclose(x, y, rtol=1e-9, atol=1e-15)
        for a, b in lists
        for x, y in zip(a, b, strict=True)
    )


def other(base: Settings, **changes) -> tuple[Settings, Settings]:
    return replace(base, **changes), base


GLOBAL = replace(ADAM, clip="global")
FAULTS = {
    "coefficient": (
        *other(ADAM, decay=0.03),
        "optimizer",
        "coefficient: Paddle 0.03, PyTorch 0.01",
    ),
    "double decay": (*other(ADAM, decay=0.02), "optimizer", "Paddle 0.02, PyT.* double decay"),
    "both decays": (
        *other(ADAM, l2=0.01),
        "optimizer",
        "double decay: Paddle decays the weight itself .0.01. and adds .* .L2, 0.01.",
    ),
    "L2": (
        *other(ADAM, decay=0.0, l2=0.01),
        "optimizer",
        "^L2 instead of decoupled decay: .* Paddle 0.01, PyTorch 0.01$",
    ),
    "decoupled": (
        *other(replace(ADAM, decay=0.0, l2=0.01), decay=0.01, l2=0.0),
        "optimizer",
        "^decoupled instead of L2 decay",
    ),
    "decays too much": (
        *other(replace(ADAM, undecayed=("fc.bias",)), undecayed=()),
        "fc.bias",
        "decay set: decays in Paddle only: fc.bias .coefficient 0.01",
    ),
    "decays too little": (
        *other(ADAM, undecayed=("fc.bias", "head.weight")),
        "fc.bias",
        "decay set: decays in PyTorch only: fc.bias, head.weight",
    ),
    "no decay": (*other(ADAM, decay=0.0), "optimizer", "decays in PyTorch only: fc.weight"),
    "decay of SGD": (*other(replace(SGD, l2=0.01), l2=0.03), "optimizer", "0.03, PyTorch 0.01"),
    "decay of momentum": (
        *other(replace(MOMENTUM, l2=0.01), l2=0.03),
        "optimizer",
        "coefficient: Paddle 0.03, PyTorch 0.01",
    ),
    "decoupled momentum": (
        *other(replace(MOMENTUM, l2=0.01), l2=0.0, decay=0.01),
        "optimizer",
        "decoupled instead of L2 decay",
    ),
    "epsilon": (*other(ADAM, eps=1e-6), "optimizer", "^epsilon: Paddle 1e-06, PyTorch 1e-08"),
    "epsilon inside": (
        *other(ADAM, where="inside"),
        "optimizer",
        "epsilon stands elsewhere: inside the square root in Paddle .1e-08., outside",
    ),
    "epsilon before": (
        *other(ADAM, where="before"),
        "optimizer",
        "epsilon stands elsewhere: added before the bias correction in Paddle .1e-08.",
    ),
    "beta1": (*other(ADAM, beta1=0.8), "optimizer", "^beta1: Paddle 0.8, PyTorch 0.9 "),
    "beta2": (*other(ADAM, beta2=0.98), "optimizer", "^beta2: Paddle 0.98, PyTorch 0.999 "),
    "betas": (
        *other(ADAM, beta1=0.999, beta2=0.9),
        "optimizer",
        "^betas exchanged: Paddle 0.999 and 0.9, PyTorch 0.9 and 0.999",
    ),
    "correction": (*other(ADAM, corrected=False), "optimizer", "^bias correction missing"),
    "correction added": (
        *other(replace(ADAM, corrected=False), corrected=True),
        "optimizer",
        "^bias correction added",
    ),
    "amsgrad": (*other(ADAM, amsgrad=True), "optimizer", "^amsgrad: only Paddle"),
    "amsgrad missing": (
        *other(replace(ADAM, amsgrad=True), amsgrad=False),
        "optimizer",
        "^amsgrad: only PyTorch",
    ),
    "momentum": (
        *other(MOMENTUM, momentum=0.8),
        "optimizer",
        "^momentum: Paddle 0.8, PyTorch 0.9 .from the moments.",
    ),
    "dampening": (
        *other(replace(MOMENTUM, dampening=0.5), dampening=0.0),
        "optimizer",
        "^momentum convention .dampening.: .* Paddle 1, PyTorch 0.5",
    ),
    "average": (
        *other(MOMENTUM, dampening=0.9, averaged=True),
        "optimizer",
        "^momentum convention .dampening.: .* Paddle 0.1, PyTorch 1",
    ),
    "velocity with the rate": (
        *other(MOMENTUM, rated=True),
        "optimizer",
        "^momentum convention: only Paddle's velocity holds the learning rate",
    ),
    "nesterov": (*other(MOMENTUM, nesterov=True), "optimizer", "^nesterov: only Paddle"),
    "nesterov missing": (
        *other(replace(MOMENTUM, nesterov=True), nesterov=False),
        "optimizer",
        "^nesterov: only PyTorch",
    ),
    "no momentum": (
        replace(SGD),
        MOMENTUM,
        "optimizer",
        "another optimizer: Paddle's keeps no moments .*, PyTorch's a velocity",
    ),
    "rate": (
        *other(ADAM, rate=2e-3),
        "optimizer",
        "learning rate applied to the update: Paddle 0.002, PyTorch 0.001 .2 x PyTorch's",
    ),
    "rate of a group": (
        *other(replace(ADAM, group_rate=10.0), group_rate=1.0),
        "head.weight",
        "learning rate applied to the update of head.weight: Paddle 0.001, PyTorch 0.01 .0.1 x",
    ),
    "hidden factor": (
        *other(replace(ADAM, decay=0.0), head=0.5),
        "head.weight",
        "updates of head.weight are 0.5 x PyTorch's: a hidden factor of the learning rate",
    ),
    "no clipping": (
        replace(GLOBAL, clip=""),
        GLOBAL,
        "optimizer",
        "^clipping missing: PyTorch clips the global norm at 1, Paddle does not",
    ),
    "clipping added": (GLOBAL, ADAM, "optimizer", "^clipping in Paddle only: .* global norm at 1"),
    "limit": (*other(GLOBAL, limit=5.0), "optimizer", "limit .global norm.: Paddle 5, PyTorch 1"),
    "by value": (
        *other(GLOBAL, clip="value", limit=0.5),
        "optimizer",
        "^clipping: Paddle clips the value at 0.5, PyTorch the global norm at 1",
    ),
    "each tensor": (
        *other(GLOBAL, clip="tensor"),
        "optimizer",
        "^clipping: Paddle clips the norm of each tensor at 1, PyTorch the global norm",
    ),
    "each group": (
        *other(GLOBAL, clip="group"),
        "optimizer",
        "^clipping: Paddle clips the norm of each group at 1, PyTorch the global norm",
    ),
    "clipped momentum": (
        *other(replace(MOMENTUM, clip="global"), clip=""),
        "optimizer",
        "^clipping missing",
    ),
    "clipped SGD": (
        *other(replace(SGD, clip="global"), limit=2.0),
        "optimizer",
        "limit .global norm.: Paddle 2, PyTorch 1",
    ),
    "scaled": (
        *other(ADAM, scale=4.0),
        "optimizer",
        "^gradients are scaled by 4 in Paddle .an accumulation that is not divided",
    ),
    "scaled SGD": (*other(SGD, scale=0.25), "optimizer", "gradients are scaled by 0.25 in Paddle"),
    "scaled momentum": (*other(MOMENTUM, scale=2.0), "optimizer", "are scaled by 2 in Paddle"),
    "frozen": (
        *other(ADAM, missing=("fc.bias",)),
        "fc.bias",
        "^not in Paddle's optimizer: fc.bias .frozen, or missing",
    ),
    "trained": (
        *other(replace(ADAM, missing=("fc.bias",)), missing=()),
        "fc.bias",
        "^not in PyTorch's optimizer: fc.bias",
    ),
    "zeros": (
        *other(ADAM, zeros=True),
        "fc.bias",
        "^moves without a gradient in Paddle: fc.bias .* clear_grad.set_to_zero=False.",
    ),
    "rho": (*other(RMS, beta2=0.9), "optimizer", "^rho .alpha.: Paddle 0.9, PyTorch 0.999"),
    "Paddle's RMSProp": (
        *other(RMS, where="inside"),
        "optimizer",
        "epsilon stands elsewhere: inside the square root in Paddle",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_setting_that_differs_is_named_alone_and_placed(name) -> None:
    ours, reference, place, expected = FAULTS[name]
    found = named(ours, reference)
    assert len(found) == 1, found
    assert found[0].place == place
    assert re.search(expected, found[0].text), found[0].text


@pytest.mark.parametrize("seed", range(4))
def test_settings_are_named_whatever_was_drawn(seed) -> None:
    for name in ("epsilon", "L2", "limit", "amsgrad", "dampening"):
        ours, reference, _, expected = FAULTS[name]
        found = named(ours, reference, seed + 1)
        assert re.search(expected, found[0].text), found


def test_two_settings_at_once_are_both_named() -> None:
    ours = replace(ADAM, beta1=0.8, decay=0.05)
    texts = [cause.text for cause in named(ours, ADAM)]
    assert [text.split(":")[0] for text in texts] == ["weight decay coefficient", "beta1"]


def test_nothing_is_named_where_nothing_fits() -> None:
    ours, reference = follow(ADAM), follow(ADAM)
    rng = np.random.default_rng(5)
    trace = ours.main["fc.weight"]
    trace.weights = [w + rng.normal(size=w.shape) for w in trace.weights]
    assert explain(ours, reference, ["fc.weight"]) == []
