"""Stage ``optimizer``: the same gradients into both optimizers, judged after every step by name.

Both start from the reference's weights and get the same gradients for a few steps, the schedules
stepping along. Compared are the members, the rate applied, the update of a step without gradients
(weight decay), every update and every moment.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from align.explain.optimizer_causes import Cause, explain
from align.judge.update_judging import (
    MEMBERS,
    RATES,
    ROOM,
    SAMPLE,
    ParameterTrace,
    SideTrace,
    UpdateJudge,
)
from align.pair.any_pair import AnyPair
from align.pair.update_sides import UpdateSides
from align.record.results import Comparison, Divergence, StepResult
from align.record.run_report import place_of
from align.stages.stages import judged_control, step_result

LARGE = 20_000_000
"""Trained numbers above which the optimizer's rule is not compared on its own, in training only."""


def optimizer(pair: AnyPair) -> tuple[StepResult, list[Divergence]] | None:
    """Compare both optimizers on the same gradients, in the pair's precision.

    Returns:
        The result, and a divergence for every setting that differs; None for a large model.

    Raises:
        ValueError: an optimizer that needs a closure, a scheduler that needs a metric, a rate that
            stays zero, or nothing to train.
    """
    rows = (row for row in pair.setup.weights.rows if not row.source.buffer)
    count = sum(math.prod(row.destination.shape) for row in rows)
    if count > LARGE:
        pair.judge.note(
            f"step optimizer left out: {count:,} trained numbers, {LARGE:,} at most; its rule "
            "does not depend on the size: compare a small configuration of the model"
        )
        return None
    sides = UpdateSides(pair)
    ours, judge = sides.follow()
    comparisons = list(judge.compare(ours))
    controls = [
        judged_control(fault, judge.compare(trace), "the optimizer's own steps")
        for fault, trace in _faults(ours, pair.dtype)
    ]
    absent = f"; {sides.feed.absent} has no gradient in step 2" if sides.feed.absent else ""
    note = (
        f"{sides.steps} steps with drawn gradients, one without; the global norm is that of the "
        f"recorded gradients, {ours.norms[1]:.0e} in step 2 and {ours.norms[-1]:.0e} in the "
        f"last{absent}; of a tensor above {SAMPLE:,} elements that many are drawn"
    )
    stamps = {"ours": ours.stamp, "reference": judge.reference.stamp}
    result = step_result(pair, "optimizer", comparisons, controls, note=note, stamps=stamps)
    return result, _divergences(pair, sides, ours, judge, comparisons)


def _faults(ours: SideTrace, dtype: str) -> Iterator[tuple[str, SideTrace]]:
    """Planted in what was recorded of Paddle's optimizer."""
    names = [n for n, t in ours.main.items() if t.held]
    if not names:
        return
    name = max(names, key=lambda n: float(np.abs(ours.main[n].update(0)).max()))
    trace = copy.copy(ours.main[name])
    finest = ROOM * float(np.finfo(dtype).eps) * float(np.abs(trace.weights[0]).max())
    moved = [w - 0.01 * trace.update(0) - 20 * finest for w in trace.weights[1:]]
    trace.weights = [trace.weights[0], *moved]
    yield f"first update of {name} 1 % off", _replaced(ours, "main", name, trace)
    still = copy.copy(ours.still[name])
    share = max(0.01 * still.rates[0], 20 * ROOM * float(np.finfo(dtype).eps))
    still.weights = [still.weights[0], still.weights[1] - share * still.weights[0]]
    yield f"{name} decays more in Paddle", _replaced(ours, "still", name, still)
    frozen = copy.copy(ours.main[name])
    frozen.rates = [math.nan] * frozen.steps
    yield f"{name} not in the optimizer", _replaced(ours, "main", name, frozen)


def _replaced(ours: SideTrace, part: str, name: str, trace: ParameterTrace) -> SideTrace:
    return dataclasses.replace(ours, **{part: {**getattr(ours, part), name: trace}})


def _divergences(
    pair: AnyPair,
    sides: UpdateSides,
    ours: SideTrace,
    judge: UpdateJudge,
    comparisons: list[Comparison],
) -> list[Divergence]:
    """One for every setting that differs, with the first comparison that shows it."""
    failed = [c for c in comparisons if not c.passed]
    if not failed:
        return []
    wrong = _wrong(ours, judge.reference, failed)
    factories = pair.plan.optimizer
    source = "" if isinstance(factories, Mapping) else place_of(factories[1])
    causes = explain(sides, ours, judge, wrong) or [Cause("", tuple(wrong), tuple(wrong))]
    divergences = []
    for cause in causes:
        shown = next((c for c in failed if c.name.partition("/")[2] in cause.names), failed[0])
        divergences.append(
            Divergence(
                shown.name, cause.place, "optimizer", pair.dtype, shown.reason, cause.text, source
            )
        )
    return divergences


def _wrong(ours: SideTrace, reference: SideTrace, failed: list[Comparison]) -> list[str]:
    """Paddle's names of the parameters that are out of tolerance, in the model's order."""
    named = {c.name.partition("/")[2] for c in failed}
    titles = {c.name for c in failed}
    odd = [
        name
        for name, trace in reference.main.items()
        if name in ours.main
        and (
            (MEMBERS in titles and trace.held != ours.main[name].held)
            or (RATES in titles and trace.held and _apart(trace.rates, ours.main[name].rates))
        )
    ]
    return [n for n in reference.main if n in ours.main and (n in named or n in odd)]


def _apart(a: list[float], b: list[float]) -> bool:
    return not np.allclose(a, b, rtol=1e-9, atol=0)
