"""The stages of a comparison: forward, inject, backward, training; each one StepResult."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.pair.any_pair import AnyPair
from align.pair.isolation import Guilty
from align.pair.rounding_scatter import RoundingScatter
from align.record.recording import ROOT, Recording
from align.record.results import Comparison, ControlResult, StepResult


def judged_control(name: str, comparisons: Iterable[Comparison], where: str) -> ControlResult:
    """A planted fault: caught when one of the stage's comparisons fails; the rest is not made."""
    failed = next((c for c in comparisons if not c.passed), None)
    if failed is None:
        return ControlResult(name, False, f"nothing failed ({where})")
    return ControlResult(name, True, f"{where}: {failed.reason}", failed.name)


def fault(found: list[Comparison], size: float) -> float:
    """What a control plants: the given share, more when even the tightest bound is wider."""
    bounds_held = [c.bound for c in found if c.tolerance.kind == "oracle"]
    return max(size, 2.0 * min(bounds_held, default=0.0))


def _stamps(pair: AnyPair) -> dict:
    return {"ours": pair.ours.stamp, "reference": pair.reference.stamp}


def forward(pair: AnyPair) -> StepResult:
    """Every tap, in execution order; running statistics in training mode."""

    def judge(ours: Recording, only: Collection[str] | None = None) -> Iterator[Comparison]:
        noise = pair.noise[0]
        yield from pair.judge.each_tap(ours, pair.reference, pair.oracle, noise, only)
        if pair.plan.train:
            yield from pair.judge.buffers(ours, pair.reference, pair.oracle, noise)

    scatter = RoundingScatter(pair, 0)
    comparisons = scatter.settle(list(judge(pair.ours)))
    judged = [c.name for c in comparisons if not scatter.leaves_out(c.name)]
    at = _judged_tap(pair.ours, judged)
    only, where = [at.partition("#")[0]], "the model's output" if at == ROOT else at
    controls = [
        judged_control(name, scatter.judged(judge(recording, only)), where)
        for name, recording in _array_faults(pair.ours, comparisons, at)
    ]
    with pair.nudged() as name:
        if name is not None:
            with pair.pass_ours(backward=False) as nudged:
                found = scatter.judged(judge(nudged))
                controls.append(judged_control("a weight 1 % off", found, name))
    pair.unjudged = scatter.unsure
    note = "; ".join(filter(None, [*pair.judge.notes, scatter.note]))
    case = pair.plan.name
    return StepResult(
        case, "forward", pair.dtype, comparisons, controls, note=note, stamps=_stamps(pair)
    )


def _judged_tap(recording: Recording, names: Iterable[str]) -> str:
    """Of these taps the model's output, else the last one (rounding may decide about the first)."""
    keys = [name.partition("[")[0] for name in names]
    found = [key for key in keys if key in recording.calls and _floating(recording, key)]
    return ROOT if ROOT in found or not found else found[-1]


def _floating(recording: Recording, key: str) -> list[int]:
    """Places of the floating tensors in the output of a call."""
    outputs = recording.calls[key].outputs
    return [i for i, (_, a) in enumerate(outputs) if a.dtype.kind == "f" and a.size]


def _array_faults(
    recording: Recording, comparisons: list[Comparison], key: str
) -> Iterator[tuple[str, Recording]]:
    """What known tools let through, in the first floating output of a call."""
    outputs = recording.calls[key].outputs
    at = _floating(recording, key)[0]
    path, value = outputs[at]
    allowed = [c for c in comparisons if c.name.partition("[")[0] == key and c.scale != 0]
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
        call = copy.copy(recording.calls[key])
        call.outputs = [*outputs[:at], (path, array), *outputs[at + 1 :]]
        changed.calls = {**recording.calls, key: call}
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
            detail = f"{name}: found {', '.join(sorted(places)) or 'as before'}"
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

    def judge(ours: Recording) -> Iterator[Comparison]:
        return pair.judge.each_gradient(ours, pair.reference, pair.oracle, pair.noise[1])

    scatter = RoundingScatter(pair, 1)
    comparisons = scatter.settle(list(judge(pair.ours)))
    controls = []
    faulty = copy.copy(pair.ours)
    if len(comparisons) > 1:
        key = _layer_without_parameters(pair)
        with pair.pass_ours(tripled=key) as tripled:
            found = scatter.judged(judge(tripled))
            controls.append(judged_control("gradient x 3 behind a layer", found, key))
    if "loss" not in scatter.unsure:
        size = fault([c for c in comparisons if c.name == "loss"], 1e-3)
        faulty.loss = faulty.loss * (1 + size) + (0 if comparisons[1:] else 1e-3)
        found = scatter.judged(judge(faulty))
        name = f"loss {100 * size:.1g} % too large"
        controls.append(judged_control(name, found, "the loss"))
    case, note = pair.plan.name, scatter.note
    return StepResult(
        case, "backward", pair.dtype, comparisons, controls, note=note, stamps=_stamps(pair)
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
