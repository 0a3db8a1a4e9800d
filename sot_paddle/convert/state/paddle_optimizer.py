"""The state of a Paddle optimizer and scheduler at work: taken, and put into fresh ones.

PADDLE: an optimizer names its tensors after automatic parameter names, which depend on how many
layers the process built before, with a number behind that depends on how many optimizers it built.
Here everything goes by the structured names of the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
from paddle import nn

from sot_paddle.convert.state.powers import counts_of, stored_arrays, stored_counters
from sot_paddle.convert.state.record import (
    MAXIMUM,
    MOMENTS,
    Group,
    OptimizerState,
    options_of,
    read_state,
    require_same,
    split_arrays,
    write_state,
)
from sot_paddle.train import exact_state
from sot_paddle.train.optimizer import HFAdamW

_HALF = (paddle.float16, paddle.bfloat16)
_ATTRIBUTES = {"amsgrad": "_amsgrad", "correct_bias": "correct_bias"}
"""Options of the whole optimizer -> its attributes."""


def take(
    optimizer: paddle.optimizer.Optimizer, model: nn.Layer, *, updates: int | None = None
) -> OptimizerState:
    """Return the state of a live optimizer, and of the scheduler that it was built with.

    Args:
        optimizer: AdamW, or this project's HFAdamW.
        model: the layer that it trains.
        updates: updates done, for a run so long that Paddle's powers of beta no longer tell
            (beta2 = 0.999: about 87 000 in float32); the scheduler's count when None.

    Returns:
        The state in Paddle's names.

    Raises:
        ValueError: an optimizer without a counterpart, or one that trains a parameter that the
            model does not have.
    """
    kind = kind_of(optimizer)
    arrays = exact_state.optimizer_arrays(optimizer, model)
    moments, masters = split_arrays({_without_prefix(optimizer, k): a for k, a in arrays.items()})
    schedule = _schedule(optimizer)
    position = None if schedule is None else int(schedule.last_epoch)
    counters = exact_state.optimizer_counters(optimizer, model)
    groups = _groups(optimizer, model, kind)
    steps = counts_of(moments, groups, counters, position if updates is None else updates)
    return OptimizerState("paddle", kind, groups, moments, steps, position, masters)


def put(
    state: OptimizerState,
    optimizer: paddle.optimizer.Optimizer,
    model: nn.Layer,
    *,
    position: int | None = None,
) -> None:
    """Let a fresh optimizer and its scheduler continue a state.

    Args:
        state: in Paddle's names.
        optimizer: built as for the start of the run, no step taken; its scheduler is stepped to
            the state's place.
        model: the layer that it trains, with the state's weights.
        position: calls of the scheduler's ``step()`` so far, where the two sides call it at
            different times (one by epoch, one by update); the state's when None.

    Raises:
        ValueError: weights or options differ, or the schedule gives another rate at this place.
    """
    if state.side != "paddle":
        raise ValueError("this state is in PyTorch's names: convert it first")
    if any(optimizer._accumulators.values()):
        raise ValueError("the Paddle optimizer is not fresh: it has taken a step")
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    state.check(shapes, untouched=True)
    _wind(state, optimizer, position)
    require_same(state, take(optimizer, model, updates=0), "the Paddle optimizer")
    arrays = stored_arrays(state)
    _check_dtypes(arrays, optimizer, model)
    prefixed = {_with_prefix(optimizer, key): array for key, array in arrays.items()}
    exact_state.restore_optimizer(optimizer, model, prefixed, stored_counters(state))


def save(
    path: str | os.PathLike[str], optimizer: paddle.optimizer.Optimizer, model: nn.Layer
) -> None:
    """Write a live optimizer's state to a ``.safetensors`` file, whole or not at all."""
    write_state(path, take(optimizer, model))


def load(
    path: str | os.PathLike[str],
    optimizer: paddle.optimizer.Optimizer,
    model: nn.Layer,
    *,
    position: int | None = None,
) -> None:
    """`put` the state of a file, or of a folder that ``tools/convert_state.py`` wrote.

    Raises:
        ValueError: see `read_state` and `put`.
    """
    put(read_state(path), optimizer, model, position=position)


def kind_of(optimizer: paddle.optimizer.Optimizer) -> str:
    """Return which of `KINDS` a Paddle optimizer is.

    Raises:
        ValueError: it has no counterpart in PyTorch that this conversion knows.
    """
    if getattr(optimizer, "_rescale_grad", 1.0) != 1.0:
        raise ValueError("Paddle's rescale_grad has no counterpart in PyTorch")
    if isinstance(optimizer, HFAdamW):
        return "hf_adamw"
    if isinstance(optimizer, paddle.optimizer.AdamW):
        return "adamw"
    raise ValueError(
        f"Paddle's {type(optimizer).__name__} has no counterpart here; known are AdamW (with "
        "weight_decay=0.0 for an Adam) and this project's HFAdamW"
    )


def _with_prefix(optimizer: Any, key: str) -> str:
    """PADDLE: an optimizer with a name puts it before its accumulators'."""
    name, _, kind = key.rpartition("/")
    is_plain = not optimizer._name or kind == "master_weight"
    return key if is_plain else f"{name}/{optimizer._name}_{kind}"


def _without_prefix(optimizer: Any, key: str) -> str:
    name, _, kind = key.rpartition("/")
    return f"{name}/{kind.removeprefix(f'{optimizer._name}_')}" if optimizer._name else key


def _wind(state: OptimizerState, optimizer: Any, position: int | None) -> None:
    """Step a fresh scheduler to the place where the state stands."""
    schedule = _schedule(optimizer)
    if position is None and (state.position is None) is not (schedule is None):
        has = "no schedule" if schedule else "a schedule and the Paddle optimizer none"
        raise ValueError(f"the state has {has}: build the optimizer as the run had it")
    if schedule is None:
        return
    if isinstance(schedule, paddle.optimizer.lr.ReduceOnPlateau):
        raise ValueError("ReduceOnPlateau depends on the metrics so far: its place cannot be found")
    if schedule.last_epoch != 0:
        raise ValueError(f"the Paddle scheduler is not fresh: at step {schedule.last_epoch}")
    for _ in range(state.position if position is None else position):
        schedule.step()


def _schedule(optimizer: Any) -> paddle.optimizer.lr.LRScheduler | None:
    """What drives the learning rate, None for a fixed one."""
    rate = optimizer._learning_rate
    return rate if isinstance(rate, paddle.optimizer.lr.LRScheduler) else None


def _groups(optimizer: Any, model: nn.Layer, kind: str) -> tuple[Group, ...]:
    """Collect weights with equal options, in the optimizer's order."""
    names = exact_state.structured_names(model)
    schedule, ratio = _schedule(optimizer), getattr(optimizer, "_lr_ratio", None)
    rate, initial = (schedule(), schedule.base_lr) if schedule else (optimizer._learning_rate, None)
    members: dict[tuple, tuple[dict[str, Any], float, list[str]]] = {}
    for parameter, group in _parameters(optimizer):
        if parameter.name not in names:
            raise ValueError(
                f"the Paddle optimizer trains {parameter.name}, which the layer does not have"
            )
        if parameter.stop_gradient:
            continue
        options = _options(optimizer, kind, group, parameter)
        factor = float((parameter.optimize_attr or {}).get("learning_rate", 1.0))
        factor *= 1.0 if ratio is None else float(ratio(parameter))
        key = (*options.items(), factor)
        members.setdefault(key, (options, factor, []))[2].append(names[parameter.name])
    return tuple(
        Group(tuple(listed), rate * factor, None if initial is None else initial * factor, options)
        for options, factor, listed in members.values()
    )


def _parameters(optimizer: Any) -> list[tuple[paddle.Tensor, Mapping[str, Any]]]:
    """Return every parameter with the options of its group ({} without groups)."""
    entries = optimizer._param_groups
    if not entries or not isinstance(entries[0], dict):
        return [(parameter, {}) for parameter in entries]
    return [(parameter, group) for group in entries for parameter in group["params"]]


def _options(
    optimizer: Any, kind: str, group: Mapping[str, Any], parameter: paddle.Tensor
) -> dict[str, float | bool]:
    # the optimizer's own attributes change with every group that it updates
    usual, mark = (optimizer._default_dict, "") if group else (vars(optimizer), "_")
    chooses = getattr(optimizer, "_apply_decay_param_fun", None)
    decays = chooses is None or chooses(parameter.name)

    def read(name: str) -> float | bool:
        if name in _ATTRIBUTES:
            return getattr(optimizer, _ATTRIBUTES[name], False)
        if name == "weight_decay" and not decays:
            return 0.0
        key = "epsilon" if name == "eps" else name
        return group.get(key, usual[f"{mark}{key}"])

    return options_of(kind, read)


def _check_dtypes(arrays: Mapping[str, np.ndarray], optimizer: Any, model: nn.Layer) -> None:
    """PADDLE: a tensor takes an array of another dtype by its bytes or not at all."""
    for name, parameter in model.named_parameters():
        double = parameter.dtype == paddle.float64
        wanted = np.dtype("float64" if double else "float32")
        if parameter.dtype in _HALF and not getattr(optimizer, "_multi_precision", False):
            continue
        for key in (f"{name}/{kind}" for kind in (*MOMENTS, MAXIMUM)):
            if key in arrays and arrays[key].dtype != wanted:
                raise ValueError(
                    f"{key} is {arrays[key].dtype}, the Paddle optimizer holds {wanted}: convert "
                    f"the state first, state.astype('{wanted}')"
                )
