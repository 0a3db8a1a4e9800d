"""The state of a PyTorch optimizer: from its state dict and back; files with weights only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from sot_paddle.convert.formats.torch_files import (
    from_numpy,
    load_safely,
    save,
    to_numpy,
    torch_or_refuse,
)
from sot_paddle.convert.optimizer.optimizer_state import (
    COUNTED,
    MAXIMUM,
    Group,
    OptimizerState,
    Schedule,
    options_of,
)

Names = Sequence[Sequence[str]]
"""Weight names of every parameter group, in the optimizer's order."""

_KEYS = {
    "exp_avg": "moment1",
    "exp_avg_sq": "moment2",
    "max_exp_avg_sq": MAXIMUM,
    "momentum_buffer": "velocity",
}
_WRAPPERS = ("module.", "_orig_mod.", "module.")  # of either before the other
_SPELT = {kind: key for key, kind in _KEYS.items()}
_ADAM = {"lr", "betas", "eps", "weight_decay"}
_GROUP = ("lr", "initial_lr", "params", "param_names", "betas", "eps", "weight_decay", "amsgrad",
          "correct_bias", "momentum", "nesterov")  # fmt: skip
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "adamw": {"maximize": False, "foreach": None, "capturable": False, "differentiable": False,
              "fused": None, "decoupled_weight_decay": True},
    "adam": {"maximize": False, "foreach": None, "capturable": False, "differentiable": False,
             "fused": None, "decoupled_weight_decay": False},
    "hf_adamw": {},
    "momentum": {"dampening": 0, "maximize": False, "foreach": None, "differentiable": False,
                 "fused": None},
    "sgd": {"dampening": 0, "maximize": False, "foreach": None, "differentiable": False,
            "fused": None},
}  # fmt: skip
"""What a parameter group of each kind holds besides, in PyTorch's own words."""


def from_torch(
    state_dict: Mapping[str, Any],
    names: Names | None = None,
    *,
    schedule: Mapping[str, Any] | None = None,
    kind: str = "",
) -> OptimizerState:
    """Read ``optimizer.state_dict()``.

    Args:
        state_dict: its keys are ``state`` (by index) and ``param_groups``.
        names: weight names of each group, in its order; not needed where the groups have
            ``param_names``. `optimizer_torch_live.names_of` reads them off a model.
        schedule: ``scheduler.state_dict()``, None without one.
        kind: key of `MOMENTS`, where the groups do not tell (an Adam of before PyTorch 2.6).

    Returns:
        The state in PyTorch's names. SGD does not count; its updates are the schedule's.

    Raises:
        ValueError: an optimizer without a counterpart, names that do not fit the groups, or a
            state with other entries than this kind has.
    """
    groups = param_groups(state_dict)
    kind = kind or _kind(groups)
    named = _named(groups, names)
    by_index = {
        index: name
        for group, listed in zip(groups, named, strict=True)
        for index, name in zip(group["params"], listed, strict=True)
    }
    moments, steps = _read_entries(state_dict["state"], by_index)
    made = [_read_group(kind, group, own) for group, own in zip(groups, named, strict=True)]
    return OptimizerState(
        "torch", kind, tuple(made), moments, steps, _read_schedule(schedule) if schedule else None
    )


def param_groups(state_dict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The groups of an optimizer's state dict.

    Raises:
        ValueError: it is none: its parts are missing or of another form.
    """
    groups, state = state_dict.get("param_groups"), state_dict.get("state")
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise ValueError("not the state dict of a PyTorch optimizer: no 'state' and 'param_groups'")
    for group in groups:
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
            raise ValueError("an entry of the optimizer's 'param_groups' has no list of 'params'")
        if not all(isinstance(name, str) for name in group.get("param_names", ())):
            raise ValueError("'param_names' of the optimizer's 'param_groups' are no names")
    if not all(isinstance(held, Mapping) for held in state.values()):
        raise ValueError("the optimizer's 'state' of a parameter is no dict")
    return groups


def to_torch(state: OptimizerState, names: Names | None = None) -> dict[str, Any]:
    """Make what ``optimizer.load_state_dict`` takes.

    Args:
        state: in PyTorch's names.
        names: the order of the optimizer that will load it; the state's own groups when None.

    Returns:
        ``state`` and ``param_groups``, with ``param_names`` in every group.

    Raises:
        ValueError: torch is missing, the state is Paddle's, or the order does not fit it.
    """
    torch = _torch()
    if state.side != "torch":
        raise ValueError("this state is in Paddle's names: convert it first")
    groups = state.groups if names is None else _regrouped(state, names)
    found: dict[int, dict[str, Any]] = {}
    written, index = [], 0
    for group in groups:
        params = list(range(index, index + len(group.names)))
        index += len(group.names)
        written.append(_written_group(state.kind, group, params))
        for number, name in zip(params, group.names, strict=True):
            entry = _written_entry(state, name, torch)
            if entry:
                found[number] = entry
    return {"state": found, "param_groups": written}


def group_names(state_dict: Mapping[str, Any]) -> list[list[str]] | None:
    """The names that the groups themselves record, None when they do not.

    What DataParallel or torch.compile put before all of them is left out.
    """
    groups = param_groups(state_dict) or [{}]
    if not all("param_names" in group for group in groups):
        return None
    found = [list(group["param_names"]) for group in groups]
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for group in found for name in group):
            found = [[name.removeprefix(wrapper) for name in group] for group in found]
    return found


def schedule_dict(state: OptimizerState, names: Names | None = None) -> dict[str, Any]:
    """Make what the ``load_state_dict`` of a ``LambdaLR`` takes (transformers' schedules are it).

    Args:
        state: in PyTorch's names.
        names: the order of the optimizer that it drives; the state's own groups when None.

    Raises:
        ValueError: the state has no schedule.
    """
    if state.schedule is None:
        raise ValueError("this state has no schedule")
    groups = state.groups if names is None else _regrouped(state, names)
    return {
        "base_lrs": [g.rate if g.initial_rate is None else g.initial_rate for g in groups],
        "last_epoch": state.schedule.position,
        "_step_count": state.schedule.position + 1,
        "_is_initial": False,
        "_get_lr_called_within_step": False,
        "_last_lr": [group.rate for group in groups],
        "lr_lambdas": [None] * len(groups),
    }


def load_plain(path: Path) -> Any:
    """Read a torch file of plain data; no code of the file runs.

    Raises:
        ValueError: torch is missing, the file is damaged or holds more.
    """
    remedy = "; save state_dict() of model, optimizer and scheduler, and numbers, where it was made"
    return load_safely(path, _torch(), "plain data", remedy)


def save_plain(content: Any, handle: BinaryIO) -> None:
    """Write plain data and tensors as a torch file."""
    save(_torch(), content, handle)


def plain_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Tensors that own their memory."""
    torch = _torch()
    return {name: from_numpy(name, array, torch) for name, array in arrays.items()}


def _torch() -> ModuleType:
    return torch_or_refuse("the PyTorch side of a training's state needs torch: install it")


def _kind(groups: Sequence[Mapping[str, Any]]) -> str:
    keys = set(groups[0]) if groups else set()
    if keys >= {"momentum", "dampening", "nesterov"} and "betas" not in keys:
        return "momentum" if any(group["momentum"] for group in groups) else "sgd"
    if keys >= _ADAM | {"correct_bias"}:
        return "hf_adamw"
    if keys >= _ADAM | {"decoupled_weight_decay"}:
        return "adamw" if groups[0]["decoupled_weight_decay"] else "adam"
    if keys >= _ADAM | {"amsgrad"}:
        if not any(group["weight_decay"] for group in groups):
            return "adamw"  # without decay both are the same
        raise ValueError(
            "Adam or AdamW: before PyTorch 2.6 the state does not say which; name it (--optimizer)"
        )
    raise ValueError(
        "an optimizer without a counterpart here (its options: "
        f"{', '.join(sorted(keys - {'params'})) or 'none'}); known are AdamW, Adam, transformers' "
        "AdamW and SGD"
    )


def _named(groups: Sequence[Mapping[str, Any]], names: Names | None) -> list[list[str]]:
    own = group_names({"param_groups": groups, "state": {}})
    if names is None and own is None:
        raise ValueError(
            "the optimizer's state numbers its parameters: give their names, group by group"
        )
    found = [list(group) for group in (own if names is None else names)]
    lengths = [len(group) for group in found], [len(group["params"]) for group in groups]
    if lengths[0] != lengths[1]:
        raise ValueError(f"names for groups of {lengths[0]} parameters, the state has {lengths[1]}")
    if own is not None and found != own:
        raise ValueError("the names given are not those that the state's groups record")
    return found


def _read_entries(
    state: Mapping[int, Mapping[str, Any]], by_index: Mapping[int, str]
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, int]]:
    """(moments by kind and weight, counts by weight)."""
    torch = _torch()
    moments: dict[str, dict[str, np.ndarray]] = {}
    steps: dict[str, int] = {}
    for index, held in state.items():
        if index not in by_index:
            raise ValueError(f"state of parameter {index}, which no parameter group has")
        name = by_index[index]
        for key, value in held.items():
            if key == "step":
                steps[name] = _count(name, value)
            elif key not in _KEYS:
                raise ValueError(
                    f"{name}: the state holds {key!r}, which has no counterpart in Paddle"
                )
            elif value is not None:
                if not isinstance(value, torch.Tensor):
                    raise ValueError(f"{name}: {key} is a {type(value).__name__}, not a tensor")
                array = to_numpy(f"{name}: a moment", value.cpu(), torch)
                moments.setdefault(_KEYS[key], {})[name] = array
    return moments, steps


def _count(name: str, value: Any) -> int:
    number = value.item() if getattr(value, "ndim", None) == 0 else value
    if not isinstance(number, int | float) or not float(number).is_integer():
        raise ValueError(f"{name}: step {number!r} is no whole number of updates")
    return int(number)


def _number(group: Mapping[str, Any], key: str) -> float:
    value = group.get(key)
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a parameter group's {key} is {value!r}, expected a number")
    return float(value)


def _read_group(kind: str, group: Mapping[str, Any], names: Sequence[str]) -> Group:
    if group.get("maximize") or group.get("dampening"):
        raise ValueError("maximize and dampening have no counterpart in Paddle")
    betas = group.get("betas", (0.0, 0.0))
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"a parameter group's betas are {betas!r}, expected two numbers")
    spelt = {"amsgrad": False, **group, "beta1": betas[0], "beta2": betas[1]}
    flags = ("amsgrad", "correct_bias", "nesterov")
    return Group(
        tuple(names),
        _number(group, "lr"),
        None if group.get("initial_lr") is None else _number(group, "initial_lr"),
        options_of(kind, lambda key: spelt.get(key) if key in flags else _number(spelt, key)),
        {key: value for key, value in group.items() if key not in _GROUP},
    )


def _read_schedule(held: Mapping[str, Any]) -> Schedule:
    position = held.get("last_epoch")
    if isinstance(position, bool) or not isinstance(position, int):
        raise ValueError("the scheduler's state has no 'last_epoch': not one of PyTorch's")
    plain = (bool, int, float, str)
    arguments = {
        key: value
        for key, value in held.items()
        if isinstance(value, plain) and key != "last_epoch" and not _infinite(value)
    }
    return Schedule(position, "", arguments)


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _regrouped(state: OptimizerState, names: Names) -> list[Group]:
    """The state's weights in another order of groups and of weights within a group."""
    held = {name: group for group in state.groups for name in group.names}
    given = [name for group in names for name in group]
    if sorted(given) != sorted(held):
        odd = sorted(set(given) ^ set(held)) or ["a name given twice"]
        raise ValueError(f"the order names {len(given)} parameters, the state has {len(held)}: "
                         f"first difference {odd[0]}")  # fmt: skip
    found = []
    for listed in names:
        first = held[listed[0]] if listed else state.groups[0]
        options = [{**held[name].options, "rate": held[name].rate} for name in listed]
        if any(one != options[0] for one in options):
            raise ValueError("a parameter group of the order mixes weights of different options")
        found.append(dataclasses.replace(first, names=tuple(listed)))
    return found


def _written_group(kind: str, group: Group, params: list[int]) -> dict[str, Any]:
    options = dict(group.options)
    written: dict[str, Any] = {"lr": group.rate}
    if "beta1" in options:
        written["betas"] = (options.pop("beta1"), options.pop("beta2"))
    if kind == "hf_adamw":
        options.pop("amsgrad", None)
    if kind == "sgd":
        options |= {"momentum": 0, "nesterov": False}
    written |= options | {**_DEFAULTS[kind], **group.extra}
    if group.initial_rate is not None:
        written["initial_lr"] = group.initial_rate
    return written | {"params": params, "param_names": list(group.names)}


def _written_entry(state: OptimizerState, name: str, torch: ModuleType) -> dict[str, Any]:
    arrays = {kind: state.moments[kind][name] for kind in state.moment_kinds
              if name in state.moments.get(kind, {})}  # fmt: skip
    entry: dict[str, Any] = {}
    if arrays and state.kind in COUNTED:
        double = next(iter(arrays.values())).dtype == np.float64
        count = state.steps[name]
        entry["step"] = (
            count  # transformers counts in Python
            if state.kind == "hf_adamw"
            else torch.tensor(float(count), dtype=torch.float64 if double else torch.float32)
        )
    return entry | {_SPELT[kind]: from_numpy(name, a, torch) for kind, a in arrays.items()}
