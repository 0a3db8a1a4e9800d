"""Step ``learning_rate``: the rate that each optimizer step applies, over the whole schedule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.kinds.case_kinds import EpochSchedule, Recipe
from align.cases.sides import paddle_side, torch_side
from align.frameworks import on_paddle, on_torch

Rates = list[float]
_NAME = "learning rates"


def by_step(
    setting: Setting, *, schedule: str, learning_rate: float, warmup_steps: int, total_steps: int
) -> BothSides:
    """A whole schedule by optimizer step, as each framework's optimizer applies it."""
    recipe = Recipe(
        schedule=schedule,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        total_steps=total_steps,
    )
    return compared(recipe, lambda ours: step_faults(recipe, ours))


def by_epoch(
    setting: Setting, *, learning_rate: float, epochs: EpochSchedule | None = None
) -> BothSides:
    """The rate of every epoch of a published vision run, against timm's scheduler."""
    recipe = Recipe(learning_rate=learning_rate, by_epoch=epochs or EpochSchedule())
    return compared(recipe, lambda ours: epoch_faults(recipe, ours))


def compared(recipe: Recipe, faults: Any) -> BothSides:
    """Both sides' rates; ``faults`` makes those of a wrong schedule from ours."""
    ours, our_stamp = rates_of_ours(recipe)
    reference, stamp = rates_of_reference(recipe)
    wrong = {name: _named(rates) for name, rates in faults(ours).items()}
    return BothSides(
        _named(ours),
        _named(reference),
        wrong,
        "the schedule",
        stamps=stamps(our_stamp, stamp),
        series={"learning_rate": {"paddle": ours, "pytorch": reference}},
    )


def _named(rates: Rates) -> Mapping[str, np.ndarray]:
    return {_NAME: np.asarray(rates)}


def rates_of_ours(recipe: Recipe) -> tuple[Rates, dict[str, Any]]:
    """The rate that each step of a whole schedule applies, read from Paddle's optimizer."""
    schedule = paddle_side.schedule_of(recipe)
    parameter = paddle.create_parameter([1], "float64")
    optimizer = paddle.optimizer.SGD(learning_rate=schedule, parameters=[parameter])
    by_epoch = recipe.by_epoch
    length = schedule._rates.total_epochs * by_epoch.steps if by_epoch else recipe.length
    return _stepped(on_paddle, optimizer, schedule, length), on_paddle.stamp(parameter)


def rates_of_reference(recipe: Recipe) -> tuple[Rates, dict[str, Any]]:
    """The same of PyTorch's."""
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=recipe.learning_rate)
    schedule = torch_side.schedule_of(optimizer, recipe)
    return _stepped(on_torch, optimizer, schedule, recipe.length), on_torch.stamp(parameter)


def _stepped(side: Any, optimizer: Any, schedule: Any, steps: int) -> Rates:
    rates = []
    for _ in range(steps):
        rates.append(side.rate(optimizer))
        optimizer.step()
        schedule.step()
    return rates


def step_faults(recipe: Recipe, ours: Rates) -> dict[str, Rates]:
    """Shifted, wrongly warmed up, doubled, and cut off early."""
    faults = {"all rates doubled": [2 * rate for rate in ours]}
    if recipe.schedule == "constant":
        linear = dataclasses.replace(recipe, schedule="linear")
        faults["a falling rate"] = rates_of_ours(linear)[0]
    if len(set(ours)) > 1:
        faults["shifted by one step"] = [*ours[1:], ours[-1] * 0.5]
        faults["one step short"] = ours[:-1]
    warmup = recipe.warmup_steps
    if warmup:
        faults["warm-up one step longer"] = [
            rate * min(1.0, step / (warmup + 1)) / max(min(1.0, step / warmup), 1e-30)
            for step, rate in enumerate(ours)
        ]
    if recipe.schedule == "linear_drop":
        rebased = dataclasses.replace(recipe, schedule="linear")
        faults["the line begun anew after the warm-up"] = rates_of_ours(rebased)[0]
    span = recipe.total_steps - warmup
    if recipe.schedule == "cosine" and span:
        angles = [2 * math.pi * (step - warmup) / span for step in range(len(ours))]
        wave = [recipe.learning_rate * (1 + math.cos(angle)) / 2 for angle in angles]
        faults["a full cosine wave"] = [*ours[: math.ceil(warmup)], *wave[math.ceil(warmup) :]]
    return faults


def epoch_faults(recipe: Recipe, ours: Rates) -> dict[str, Rates]:
    """What a port gets wrong: the warm-up as a prefix, the getter of another epoch, the floor."""
    assert recipe.by_epoch is not None
    epochs = recipe.by_epoch

    def rates(**changes: float | str) -> Rates:
        changed = dataclasses.replace(epochs, **changes)
        return rates_of_ours(dataclasses.replace(recipe, by_epoch=changed))[0]

    warmup = epochs.warmup_epochs
    faults = {
        "shifted by one epoch": [*ours[1:], ours[-1] * 0.5],
        "warm-up one epoch longer": rates(warmup_epochs=warmup + 1),
        "no epochs at the minimum": ours[: epochs.epochs * epochs.steps],
    }
    if epochs.kind == "constant":
        return {**faults, "a falling rate": rates(kind="cosine")}
    prefix = [*ours[:warmup], recipe.learning_rate, *ours[warmup:-1]]
    return {
        **faults,
        "the warm-up as a prefix of the cosine": prefix,
        "down to zero": rates(min_lr=0.0),
    }
