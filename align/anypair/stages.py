"""The stages of a comparison: forward, inject, backward, training; each one StepResult."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from align.anypair import bounds
from align.anypair.isolation import Guilty
from align.anypair.pair import AnyPair
from align.anypair.recording import ROOT, Recording
from align.comparator import compare_arrays, compare_mappings
from align.distance import absolute_difference, norm_of
from align.results import Comparison, ControlResult, StepResult
from align.sides import Arrays, TrainingRun
from align.tolerance import Tolerance


def judged_control(name: str, comparisons: list[Comparison], where: str) -> ControlResult:
    """A planted fault: caught when the stage's own comparisons fail."""
    failed = [c for c in comparisons if not c.passed]
    if not failed:
        return ControlResult(name, False, f"nothing failed ({where})")
    return ControlResult(name, True, f"{where}: {failed[0].reason}", failed[0].name)


def _stamps(pair: AnyPair) -> dict:
    return {"ours": pair.ours.stamp, "reference": pair.reference.stamp}


def forward(pair: AnyPair) -> StepResult:
    """Every tap, in execution order; running statistics in training mode."""

    def judge(ours: Recording) -> list[Comparison]:
        noise = pair.noise[0]
        found = pair.judge.forward(ours, pair.reference, pair.oracle, noise)
        if pair.plan.train:
            found += pair.judge.buffers(ours, pair.reference, pair.oracle, noise)
        return found

    comparisons = judge(pair.ours)
    controls = [
        judged_control(name, judge(recording), "the model's output")
        for name, recording in _array_faults(pair.ours, comparisons)
    ]
    with pair.nudged() as name:
        if name is not None:
            controls.append(judged_control("a weight 1 % off", judge(pair.run_ours()), name))
    note = "; ".join(pair.judge.notes)
    case = pair.plan.name
    return StepResult(
        case, "forward", pair.dtype, comparisons, controls, note=note, stamps=_stamps(pair)
    )


def _array_faults(
    recording: Recording, comparisons: list[Comparison]
) -> Iterator[tuple[str, Recording]]:
    """What known tools let through, in the model's first floating output."""
    outputs = recording.calls[ROOT].outputs
    at = next(i for i, (_, a) in enumerate(outputs) if a.dtype.kind == "f" and a.size)
    path, value = outputs[at]
    allowed = [c for c in comparisons if c.name.startswith(ROOT) and c.scale != 0]
    room = max((c.bound * c.scale for c in allowed if np.isfinite(c.bound)), default=0.0)
    bumped, poisoned = value.copy(), value.copy()
    bumped.reshape(-1)[value.size // 2] += max(20 * room, 1e-6 * float(np.abs(value).max()) or 1.0)
    poisoned.reshape(-1)[0] = np.nan
    faults = {
        "one element off by 20 bounds": bumped,
        "one NaN": poisoned,
        "an extra axis that would broadcast": value[None],
    }
    for name, array in faults.items():
        changed = copy.copy(recording)
        root = copy.copy(recording.calls[ROOT])
        root.outputs = [*outputs[:at], (path, array), *outputs[at + 1 :]]
        changed.calls = {**recording.calls, ROOT: root}
        yield name, changed


def isolated(pair: AnyPair) -> tuple[StepResult, list[Guilty]]:
    """Inject mode: each layer on the reference's inputs."""
    run = pair.isolate()
    controls = []
    with pair.nudged() as name:
        if name is not None:
            again = pair.isolate()
            places = {one.place for one in again.guilty} - {one.place for one in run.guilty}
            owner = name.rpartition(".")[0] or ROOT
            caught = owner in places or bool(again.guilty)
            detail = f"{name}: guilty {', '.join(sorted(places)) or 'as before'}"
            controls.append(ControlResult("a weight 1 % off", caught, detail, owner))
    if not controls:
        failed = [c for c in run.comparisons if not c.passed]
        bad = compare_arrays("x", np.asarray([1.01]), np.asarray([1.0]), bounds.ISOLATED["float32"])
        caught = not bad.passed
        controls.append(ControlResult("one value 1 % off", caught, bad.reason, str(len(failed))))
    note = "each layer was fed the reference's inputs: errors do not accumulate"
    case = f"{pair.plan.name} (inject)"
    result = StepResult(
        case, "forward", pair.dtype, run.comparisons, controls, note=note, stamps=_stamps(pair)
    )
    return result, run.guilty


def backward(pair: AnyPair) -> StepResult:
    """The loss, every tap's gradient in backward order, parameters' and inputs' gradients."""

    def judge(ours: Recording) -> list[Comparison]:
        return pair.judge.backward(ours, pair.reference, pair.oracle, pair.noise[1])

    comparisons = judge(pair.ours)
    controls = []
    if len(comparisons) > 1:
        key = _layer_without_parameters(pair)
        tripled = judge(pair.run_ours(tripled=key))
        controls.append(judged_control("gradient x 3 behind a layer", tripled, key))
        faulty = copy.copy(pair.ours)
        faulty.loss = faulty.loss * 1.001
        controls.append(judged_control("loss 0.1 % too large", judge(faulty), "the loss"))
    else:
        faulty = copy.copy(pair.ours)
        faulty.loss = faulty.loss * 1.001 + 1e-3
        controls.append(judged_control("loss 0.1 % too large", judge(faulty), "the loss"))
    return StepResult(
        pair.plan.name, "backward", pair.dtype, comparisons, controls, stamps=_stamps(pair)
    )


def _layer_without_parameters(pair: AnyPair) -> str:
    """The last paired call of a layer without parameters, else the model itself."""
    owners = {row.destination.owner for row in pair.setup.weights.rows}
    keys = [
        key
        for key, own, call in pair.judge.taps(pair.ours, pair.reference)
        if call.grad_outputs and own.name != ROOT
        if not any(owner == own.name or owner.startswith(f"{own.name}.") for owner in owners)
    ]
    upstream = [key for key in keys if _has_upstream(pair, key)]
    return upstream[-1] if upstream else ROOT


def _has_upstream(pair: AnyPair, key: str) -> bool:
    """Whether a gradient arrives anywhere after it passed ``key``."""
    order = [at for at, _ in pair.ours.backward_order]
    return key in order and order.index(key) < len(order) - 1


def training(pair: AnyPair) -> tuple[StepResult, TrainingRun]:
    """Losses, rates, final tensors and moments after the plan's steps."""
    plan, dtype = pair.plan, pair.dtype
    reference = pair.train_reference(dtype)
    oracle = None if dtype == "float64" else pair.train_reference("float64")
    moved = pair.train_reference(dtype, seed=plan.seed + 1)
    ours = pair.train_ours()
    band = {
        name: _apart(value, _quantities(pair, reference)[name])
        for name, value in _quantities(pair, moved).items()
    }

    def judge(run: TrainingRun) -> list[Comparison]:
        return _compare_training(pair, run, reference, oracle, band)

    name = max(ours.state, key=lambda n: ours.state[n].size, default="")
    faults = {
        "one tensor 1 % off at the end": _changed(ours, name),
        "a rate one step late": _late(ours),
    }
    controls = [judged_control(k, judge(run), "the run") for k, run in faults.items()]
    result = StepResult(
        plan.name,
        "training",
        dtype,
        judge(ours),
        controls,
        note=f"noise band of the losses: {band['losses']:.1e} of their size over {plan.steps} steps"
        "; dropout is off on both sides",
        series={
            "loss": {"paddle": ours.losses, "pytorch": reference.losses},
            "learning_rate": {
                "paddle": ours.learning_rates,
                "pytorch": reference.learning_rates,
            },
        },
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )
    return result, ours


def _changed(run: TrainingRun, name: str) -> TrainingRun:
    changed = copy.copy(run)
    changed.state = dict(run.state)
    if name:
        changed.state[name] = run.state[name] * 1.01 + 0.01
    return changed


def _late(run: TrainingRun) -> TrainingRun:
    """Rates one step late; a constant schedule is scaled instead."""
    changed = copy.copy(run)
    rates = run.learning_rates
    late = [rates[0], *rates[:-1]]
    changed.learning_rates = [r * 1.001 for r in rates] if late == rates else late
    return changed


def _quantities(pair: AnyPair, run: TrainingRun) -> Arrays:
    """Everything of a reference run in Paddle's names."""
    found: Arrays = {"losses": np.asarray(run.losses)}
    found.update(pair.setup.weights.to_paddle(run.state))
    for kind, arrays in run.moments.items():
        held = pair.setup.weights.to_paddle(arrays)
        found.update({f"{kind}/{name}": value for name, value in held.items()})
    return found


def _compare_training(
    pair: AnyPair,
    ours: TrainingRun,
    reference: TrainingRun,
    oracle: TrainingRun | None,
    band: Mapping[str, float],
) -> list[Comparison]:
    expected = _quantities(pair, reference)
    judged = None if oracle is None else _quantities(pair, oracle)
    own: Arrays = {"losses": np.asarray(ours.losses)}
    own.update({name: value for name, value in ours.state.items() if name in expected})
    for kind, arrays in ours.moments.items():
        own.update({f"{kind}/{name}": value for name, value in arrays.items()})
    rates = compare_arrays(
        "learning rates",
        np.asarray(ours.learning_rates),
        np.asarray(reference.learning_rates),
        bounds.RATE,
    )
    found = [rates]
    for kind in dict.fromkeys(_kind(name) for name in expected):
        sides = [
            {n: v for n, v in side.items() if _kind(n) == kind and v.size}
            for side in (own, expected, judged or {})
        ]
        scale = max([float(np.abs(v).max()) for v in sides[1].values()], default=0.0) or 1.0
        zero_scale = scale if kind else None
        third = None if judged is None else {n: v.astype(np.float64) for n, v in sides[2].items()}
        rule = _state_rule(pair, band)
        if kind:
            base = bounds.training(pair.dtype, pair.setup.pooled, pair.plan.steps)
            rule = bounds.gradient_rules(base, band, sides[1], third, scale, pair.dtype)
        found += compare_mappings(sides[0], sides[1], rule, oracle=third, zero_scale=zero_scale)
    return found


def _state_rule(pair: AnyPair, noise: Mapping[str, float]) -> Callable[[str], Tolerance]:
    """The training rule; running statistics have their own."""
    statistics = {row.destination.name for row in pair.setup.weights.rows if row.source.buffer}
    base = bounds.training(pair.dtype, pair.setup.pooled, pair.plan.steps)
    own = bounds.STATISTICS[pair.dtype]
    return lambda name: bounds.rules(own if name in statistics else base, noise)(name)


def _kind(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    if a.size == 0 or a.dtype.kind != "f":
        return 0.0
    scale = norm_of(b, "l2")
    return norm_of(absolute_difference(a, b), "l2") / scale if scale > 0 else 0.0
