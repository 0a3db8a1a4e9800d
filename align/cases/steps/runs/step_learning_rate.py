"""Step ``learning_rate``: the rate that each optimizer step applies, over the whole schedule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import EpochScheduleCase, Recipe, ScheduleCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_arrays
from align.record.results import Comparison, StepResult


def run(case: ScheduleCase, dtype: None, context: Context) -> StepResult:
    """Compare a whole schedule by optimizer step."""
    return _compare(case.name, _recipe(case), lambda ours: _faults(case, ours))


def _recipe(case: ScheduleCase) -> Recipe:
    return Recipe(
        schedule=case.schedule,
        learning_rate=case.learning_rate,
        warmup_steps=case.warmup_steps,
        total_steps=case.total_steps,
    )


def run_by_epoch(case: EpochScheduleCase, dtype: None, context: Context) -> StepResult:
    """Compare the rate of every epoch."""
    recipe = Recipe(learning_rate=case.learning_rate, by_epoch=case.by_epoch)
    return _compare(case.name, recipe, lambda ours: _epoch_faults(recipe, ours))


def _compare(
    name: str, recipe: Recipe, faults: Callable[[list[float]], list[tuple[str, list[float]]]]
) -> StepResult:
    ours, ours_stamp = paddle_side.learning_rates(recipe)
    reference, reference_stamp = torch_side.learning_rates(recipe)

    def compare(rates: list[float]) -> list[Comparison]:
        return [
            compare_arrays(
                "learning rates",
                np.asarray(rates),
                np.asarray(reference),
                TOLERANCES["learning_rate", None],
            )
        ]

    controls = [judge(fault, compare(rates), "the schedule") for fault, rates in faults(ours)]
    return StepResult(
        name,
        "learning_rate",
        None,
        compare(ours),
        controls,
        series={"learning_rate": {"paddle": ours, "pytorch": reference}},
        stamps={"ours": ours_stamp, "reference": reference_stamp},
    )


def _faults(case: ScheduleCase, ours: list[float]) -> list[tuple[str, list[float]]]:
    """Shifted, wrongly warmed up, doubled, and cut off early."""
    faults = [("all rates doubled", [2 * rate for rate in ours])]
    if case.schedule == "constant":
        linear = dataclasses.replace(_recipe(case), schedule="linear")
        faults.append(("a falling rate", paddle_side.learning_rates(linear)[0]))
    if len(set(ours)) > 1:
        faults.append(("shifted by one step", [*ours[1:], ours[-1] * 0.5]))
        faults.append(("one step short", ours[:-1]))
    if case.warmup_steps:
        warmup = case.warmup_steps
        late = [
            rate * min(1.0, step / (warmup + 1)) / max(min(1.0, step / warmup), 1e-30)
            for step, rate in enumerate(ours)
        ]
        faults.append(("warm-up one step longer", late))
    if case.schedule == "cosine":
        span = case.total_steps - case.warmup_steps
        full = [
            rate
            if step < case.warmup_steps
            else case.learning_rate
            * (1 + math.cos(2 * math.pi * (step - case.warmup_steps) / span))
            / 2
            for step, rate in enumerate(ours)
        ]
        faults.append(("a full cosine wave", full))
    return faults


def _epoch_faults(recipe: Recipe, ours: list[float]) -> list[tuple[str, list[float]]]:
    """What a port gets wrong: the warm-up as a prefix, the getter of another epoch, the floor."""
    assert recipe.by_epoch is not None
    epochs = recipe.by_epoch

    def rates(**changes: float | str) -> list[float]:
        changed = dataclasses.replace(epochs, **changes)
        return paddle_side.learning_rates(dataclasses.replace(recipe, by_epoch=changed))[0]

    warmup = epochs.warmup_epochs
    prefix = [*ours[:warmup], recipe.learning_rate, *ours[warmup:-1]]
    faults = [
        ("shifted by one epoch", [*ours[1:], ours[-1] * 0.5]),
        ("warm-up one epoch longer", rates(warmup_epochs=warmup + 1)),
        ("no epochs at the minimum", ours[: epochs.epochs * epochs.steps]),
    ]
    if epochs.kind == "constant":
        return [*faults, ("a falling rate", rates(kind="cosine"))]
    return [
        *faults,
        ("the warm-up as a prefix of the cosine", prefix),
        ("down to zero", rates(min_lr=0.0)),
    ]
