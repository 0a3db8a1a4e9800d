"""The state of a PyTorch optimizer and scheduler at work: taken, and put into fresh ones."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from sot_paddle.convert.optimizer.optimizer_differences import identical, require_same
from sot_paddle.convert.optimizer.optimizer_state import OptimizerState
from sot_paddle.convert.optimizer.optimizer_torch import from_torch, to_torch


def names_of(optimizer: Any, model: Any) -> list[list[str]]:
    """Names of an optimizer's parameters in its order, group by group.

    Args:
        optimizer: torch.optim.Optimizer.
        model: the module that it trains.

    Raises:
        ValueError: it trains a parameter that the module does not have.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = [[names.get(id(p), "") for p in group["params"]] for group in optimizer.param_groups]
    if any("" in group for group in found):
        raise ValueError("the PyTorch optimizer trains a parameter that the module does not have")
    return found


def take(optimizer: Any, model: Any, schedule: Any = None) -> OptimizerState:
    """The state of a live optimizer (and scheduler), copied."""
    place = schedule.state_dict() if schedule is not None else None
    state = from_torch(optimizer.state_dict(), names_of(optimizer, model), schedule=place)
    copied = {
        kind: {name: array.copy() for name, array in held.items()}
        for kind, held in state.moments.items()
    }
    if state.schedule is not None:
        named = dataclasses.replace(state.schedule, kind=type(schedule).__name__)
        state = dataclasses.replace(state, schedule=named)
    return dataclasses.replace(state, moments=copied)


def put(state: OptimizerState, optimizer: Any, model: Any, schedule: Any = None) -> None:
    """Let a fresh optimizer (and scheduler) continue a state; read back and compared.

    Args:
        state: in PyTorch's names.
        optimizer: built as for the start of the run, no step taken.
        model: the module that it trains.
        schedule: its scheduler, fresh; it is stepped to the state's place.

    Raises:
        ValueError: weights or options differ, or the schedule gives another rate at this place.
    """
    names = names_of(optimizer, model)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    state.check(shapes, untouched=True)
    _wind(state, schedule)
    require_same(state, from_torch(optimizer.state_dict(), names), "the PyTorch optimizer")
    optimizer.load_state_dict(to_torch(state, names))
    apart = identical(take(optimizer, model), state)
    if apart:
        raise ValueError(f"the PyTorch optimizer does not hold what was loaded: {apart[0]}")


def _wind(state: OptimizerState, schedule: Any) -> None:
    if state.schedule is None or schedule is None:
        if state.schedule is not schedule:
            raise ValueError("the state has a schedule and the optimizer none, or the reverse")
        return
    if schedule.last_epoch != 0:
        raise ValueError(f"the PyTorch scheduler is not fresh: at step {schedule.last_epoch}")
    with warnings.catch_warnings():  # no update was made here: that is meant
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
        for _ in range(state.schedule.position):
            schedule.step()
