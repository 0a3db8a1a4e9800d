"""The stages of a comparison: forward, inject, backward, training; each one StepResult."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from align.explain import locate
from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.judge.judging import OUTPUTS, unpair_other_structures
from align.pair.isolation import Guilty
from align.pair.pair import Pair
from align.record.recording import ROOT, Recording
from align.record.results import STEPS, Comparison, ControlResult, Divergence, StepResult

if TYPE_CHECKING:
    from align.pair.any_pair import AnyPair
    from align.pair.isolation_backward import BackwardIsolation


def judged_control(
    name: str, comparisons: Iterable[Comparison], where: str, before: Iterable[Comparison] = ()
) -> ControlResult:
    """A planted fault: caught when one of the stage's comparisons fails; the rest is not made.

    Args:
        comparisons: with it.
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


def step_result(
    pair: Pair,
    step: str,
    comparisons: list[Comparison],
    controls: list[ControlResult],
    *,
    part: str = "",
    **more: Any,
) -> StepResult:
    """Return the result of a step on the passes of a pair.

    Args:
        part: "inject", "dropout": what of the step it is beside the pass as it ran.
        more: further fields of `StepResult`; both passes' stamps are the default.
    """
    case = f"{pair.plan.name} ({part})" if part else pair.plan.name
    if "stamps" not in more:
        more["stamps"] = {"ours": pair.ours.stamp, "reference": pair.reference.stamp}
    dtype = None if STEPS[step].once else pair.dtype
    return StepResult(case, step, dtype, comparisons, controls, **more)


def forward(pair: Pair) -> StepResult:
    """Every tap, in execution order; running statistics in training mode."""
    unpair_other_structures(pair.judge, pair.ours, pair.reference)
    settling = pair.settling
    comparisons = pair.settled_taps
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
    return step_result(pair, "forward", comparisons, controls, note=note)


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
    value = recording.calls[key].outputs[at]
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
        size = max(1e-3, 2.0 * of_loss.bound)
        more = 0.0 if comparisons[1:] and pair.ours.loss else 1e-3
        if of_loss.unit == "zero_scale":  # 0.1 % of what counts as zero would not show
            more = 1e-3 * of_loss.scale
        faulty = dataclasses.replace(pair.ours, loss=pair.ours.loss * (1 + size) + more)
        with_fault = settling.planted(pair.gradients(faulty))
        name = f"loss {100 * size:.1g} % too large"
        controls.append(judged_control(name, with_fault, "the loss", comparisons))
    return step_result(pair, "backward", comparisons, controls, note=settling.note)


def isolated(pair: AnyPair) -> tuple[StepResult, list[Guilty]]:
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
        controls.append(_planted_number("one value 1 % off", 1.01))
    note = "each layer was fed the reference's inputs: errors do not accumulate"
    result = step_result(pair, "forward", run.comparisons, controls, part="inject", note=note)
    return result, run.guilty


def isolated_backward(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Inject mode backward: each layer on the reference's own inputs and gradients.

    Returns:
        StepResult of step "backward" named "... (inject)", and one divergence for each wrong
        layer, in backward order. A container answers only for its own code.
    """
    from align.pair.isolation_backward import BackwardIsolation  # two dumps need no framework

    run = BackwardIsolation(pair).run()
    key = _to_plant(pair, run)
    if key:
        planted = BackwardIsolation(pair, tripled=key).run()
        places = {g.place for g in planted.wrong} - {g.place for g in run.wrong}
        detail = f"wrong: {', '.join(sorted(places)) or 'as before'}"
        control = ControlResult("gradient x 3 in one layer", key in places, detail, key)
    else:
        control = _planted_number("a gradient x 3", 3.0)
    note = "each layer was fed the reference's inputs and gradients: errors do not travel"
    result = step_result(pair, "backward", run.comparisons, [control], part="inject", note=note)
    return result, locate.backward_divergences(pair, run.wrong, run.forward_wrong)


def _planted_number(name: str, wrong: float) -> ControlResult:
    """A fault in a number that is 1, where no layer can be planted one."""
    rule = bounds.ISOLATED["float32"]
    bad = compare_arrays(name, np.asarray([wrong]), np.asarray([1.0]), rule)
    return ControlResult(name, not bad.passed, bad.reason)


def _to_plant(pair: AnyPair, run: BackwardIsolation) -> str:
    """A call whose gradient is right, one of a layer without parameters where there is one."""
    wrong = {g.place for g in run.wrong}
    keys = [
        c.name.partition(" of ")[2] for c in run.comparisons if " at input " in c.name and c.passed
    ]
    keys = [key for key in dict.fromkeys(keys) if key not in wrong]
    keys.sort(key=lambda key: key == ROOT)
    owners = {row.destination.owner for row in pair.setup.weights.rows}
    bare = [key for key in keys if key.partition("#")[0] not in owners]
    moving = [key for key in bare + keys if any(seed.any() for seed in run.seeds.get(key, ()))]
    return next(iter(moving), "")
