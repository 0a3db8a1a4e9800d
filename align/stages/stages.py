"""The stages of a comparison: forward, inject, backward, training; each one StepResult."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.judge.judging import OUTPUTS, unpair_other_structures
from align.pair.isolation import Guilty
from align.pair.pair import Pair
from align.record.recording import ROOT, Recording
from align.record.results import Comparison, ControlResult, StepResult


def judged_control(
    name: str, comparisons: Iterable[Comparison], where: str, before: Iterable[Comparison] = ()
) -> ControlResult:
    """A planted fault: caught when one of the stage's comparisons fails; the rest is not made.

    Args:
        name: of the fault.
        comparisons: with it.
        where: it was planted.
        before: the comparisons without it: what failed then is shown only when nothing else does.
    """
    wrong, first = {c.name for c in before if not c.passed}, None
    for comparison in comparisons:
        if not comparison.passed:
            first = comparison if first is None or comparison.name not in wrong else first
            if first.name not in wrong:
                break
    if first is None:
        return ControlResult(name, False, f"nothing failed ({where})")
    return ControlResult(name, True, f"{where}: {first.reason}", first.name)


def fault(comparisons: list[Comparison], size: float) -> float:
    """What a control plants: the given share, more when even the tightest bound is wider."""
    return max(size, 2.0 * min((c.bound for c in comparisons), default=0.0))


def _stamps(pair: Pair) -> dict:
    return {"ours": pair.ours.stamp, "reference": pair.reference.stamp}


def forward(pair: Pair) -> StepResult:
    """Every tap, in execution order; running statistics in training mode."""

    unpair_other_structures(pair.judge, pair.ours, pair.reference)
    settling = pair.settling
    comparisons = settling.settle(pair.taps(pair.ours))
    at = _judged_tap(pair.ours, [c.name for c in comparisons])
    only, where = [at.partition("#")[0]], "the model's output" if at == ROOT else at
    controls = [
        judged_control(name, settling.planted(pair.taps(recording, only)), where, comparisons)
        for name, recording in _array_faults(pair.ours, comparisons, at)
    ]
    controls += [
        judged_control(name, settling.planted(pair.taps(recording)), place, comparisons)
        for name, place, recording in pair.planted("forward")
    ]
    note = "; ".join(filter(None, [*pair.judge.notes, settling.note]))
    case = pair.plan.name
    return StepResult(
        case, "forward", pair.dtype, comparisons, controls, note=note, stamps=_stamps(pair)
    )


def _judged_tap(recording: Recording, names: Iterable[str]) -> str:
    """Of these taps the model's output, else the last one (rounding may decide about the first)."""
    keys = [name.partition("[")[0] for name in names]
    floating = [key for key in keys if key in recording.calls and recording.calls[key].floating()]
    return ROOT if ROOT in floating or not floating else floating[-1]


def _array_faults(
    recording: Recording, comparisons: list[Comparison], key: str
) -> Iterator[tuple[str, Recording]]:
    """What known tools let through, in the first floating output of a call."""
    at = next(iter(recording.calls[key].floating()), None)
    if at is None:
        raise ValueError(f"{key}: has no floating output to compare")
    value = recording.calls[key].outputs[at][1]
    allowed = [c for c in comparisons if c.name.partition("[")[0] == key and c.scale != 0]
    room = max((c.bound * c.scale for c in allowed if np.isfinite(c.bound)), default=0.0)
    bumped, poisoned = value.copy(), value.copy()
    bumped.reshape(-1)[value.size // 2] += max(20 * room, 1e-6 * float(np.abs(value).max()) or 1.0)
    poisoned.reshape(-1)[0] = np.nan
    other = np.float32 if value.dtype == np.float64 else np.float64
    faults = {
        "one element off by 20 bounds": bumped,
        "one NaN": poisoned,
        "an extra axis that would broadcast": value[None],
        "another dtype": value.astype(other),
    }
    if value.ndim > 1 and not np.array_equal(value.reshape(-1), value.T.reshape(-1)):
        faults["transposed in memory"] = np.ascontiguousarray(value.T).reshape(value.shape)
    for name, array in faults.items():
        yield name, recording.with_output(key, at, array)
    uneven = any(c.name == OUTPUTS for c in comparisons)  # one tensor less may be right
    if key == ROOT and not uneven:  # of a layer inside, a note says what has no partner
        yield "a missing tensor", recording.with_output(key, at, None)


def backward(pair: Pair) -> StepResult:
    """The loss, every tap's gradient in backward order, parameters' and inputs' gradients."""

    settling = pair.settling
    comparisons = settling.settle(pair.gradients(pair.ours))
    controls = []
    if len(comparisons) > 1:
        controls += [
            judged_control(name, settling.planted(pair.gradients(recording)), place, comparisons)
            for name, place, recording in pair.planted("backward")
        ]
    if "loss" not in settling.unjudged:
        (of_loss,) = (c for c in comparisons if c.name == "loss")
        size = fault([of_loss], 1e-3)
        more = 0.0 if comparisons[1:] and pair.ours.loss else 1e-3
        if of_loss.unit == "zero_scale":  # 0.1 % of what counts as zero would not show
            more = 1e-3 * of_loss.scale
        faulty = dataclasses.replace(pair.ours, loss=pair.ours.loss * (1 + size) + more)
        with_fault = settling.planted(pair.gradients(faulty))
        name = f"loss {100 * size:.1g} % too large"
        controls.append(judged_control(name, with_fault, "the loss", comparisons))
    case, note = pair.plan.name, settling.note
    return StepResult(
        case, "backward", pair.dtype, comparisons, controls, note=note, stamps=_stamps(pair)
    )


def isolated(pair: Any) -> tuple[StepResult, list[Guilty]]:
    """Inject mode: each layer on the reference's inputs."""
    run = pair.isolate()
    controls = []
    with pair.nudged() as name:
        if name is not None:
            again = pair.isolate()
            places = {entry.place for entry in again.guilty} - {entry.place for entry in run.guilty}
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
