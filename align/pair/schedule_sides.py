"""The learning rates of both sides' optimizers, by group of parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch, stepping_paddle, stepping_torch
from align.frameworks.factories import next_rate
from align.judge.rate_curves import Curve
from align.pair.any_pair import AnyPair

Prepare = Callable[[Any], None]
"""Of a fresh scheduler, None where there is none."""


def schedule_of(
    stepping: Any, optimizer: Any, scheduler: Any, model: Any, steps: int
) -> np.ndarray:
    """The rates that an optimizer would apply, its scheduler stepped after each.

    Args:
        stepping: `stepping_torch` or `stepping_paddle`.
        optimizer: it makes no step, so no weight moves.
        scheduler: None for a constant rate.
        model: whose parameters it holds.
        steps: how many.

    Returns:
        (steps, groups) float64.
    """
    rates = [stepping.rates(optimizer, model)]
    if scheduler is None:
        return np.repeat(np.asarray(rates), steps, axis=0)
    paddle_factors = None if stepping is stepping_torch else stepping.factors(optimizer, model)
    for _ in range(steps - 1):
        next_rate(scheduler)
        if paddle_factors is None:
            rates.append(stepping.rates(optimizer, model))
        else:
            base = stepping.base_rate(optimizer)
            rates.append([base * factor for factor in paddle_factors])
    return np.asarray(rates)


@dataclass(frozen=True)
class ScheduleSide:
    """The schedule of one side: groups of parameters, (steps, groups) rates, its scheduler."""

    groups: list[list[str]]
    rates: np.ndarray
    scheduler: Any
    stamp: Any


def _side(pair: AnyPair, side: Any, stepping: Any, model: Any, prepare: Prepare) -> ScheduleSide:
    plan = pair.plan
    with side.default_dtype(pair.dtype):
        optimizer, scheduler = side.make_optimizer(plan, model)
        prepare(scheduler)
        names = stepping.groups(optimizer, model)
        rates = schedule_of(stepping, optimizer, scheduler, model, plan.schedule_steps)
    stamp = side.stamp(next(iter(stepping.parameters(model).values())))
    return ScheduleSide(names, rates, scheduler, stamp)


def theirs(pair: AnyPair) -> ScheduleSide:
    """PyTorch's side."""
    return _side(
        pair, on_torch, stepping_torch, pair.reference_model(pair.dtype, True), lambda _: None
    )


def ours(pair: AnyPair, prepare: Prepare = lambda _: None) -> ScheduleSide:
    """Paddle's side; ``prepare`` may change its fresh scheduler."""
    return _side(pair, on_paddle, stepping_paddle, pair.our_model(True), prepare)


def matched(pair: AnyPair, reference: ScheduleSide, own: ScheduleSide) -> list[Curve]:
    """Curves of the groups of both optimizers, matched by the parameters that they hold."""
    partners = pair.setup.weights.partners()
    group_of = {
        target: index
        for index, members in enumerate(reference.groups)
        for name in members
        for target in partners.get(name, ())
    }
    cells: dict[tuple[int, bytes], list[tuple[str, int]]] = {}
    for index, members in enumerate(own.groups):
        for name in members:
            if name in group_of:
                key = group_of[name], own.rates[:, index].tobytes()
                cells.setdefault(key, []).append((name, index))
    return [
        Curve(
            group,
            tuple(name for name, _ in held),
            own.rates[:, held[0][1]],
            reference.rates[:, group],
            only=len(cells) == 1,
        )
        for (group, _), held in sorted(cells.items(), key=lambda item: item[0][0])
    ]
