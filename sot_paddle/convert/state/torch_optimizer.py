"""The state of a PyTorch optimizer: from its state dict and back; files of plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np

from sot_paddle.convert.formats.torch_files import (
    from_numpy,
    to_numpy,
    torch_or_refuse,
)
from sot_paddle.convert.state.record import FLAGS, MAXIMUM, Group, OptimizerState, options_of

Names = Sequence[Sequence[str]]
"""Weight names of every parameter group, in the optimizer's order."""

CONSTANTS = ("relative_positions_mat",)
"""Ends of the names of parameters that hold no weight and get no gradient: they stand in the groups
of PyTorch's optimizer, without moments, and have no counterpart."""

HOW = (
    'write them where the training is: json.dump([[names[p] for p in g["params"]] for g in '
    'optimizer.param_groups], open("names.json", "w")) with names = {p: n for n, p in '
    "model.named_parameters()}, and give --names names.json"
)
"""What to do where an optimizer knows its parameters by number alone."""

_KEYS = {"exp_avg": "moment1", "exp_avg_sq": "moment2", "max_exp_avg_sq": MAXIMUM}
_SPELT = {kind: key for key, kind in _KEYS.items()}
_WRAPPERS = ("module.", "_orig_mod.", "module.")  # of either before the other
_ADAM = {"lr", "betas", "eps", "weight_decay"}
_GROUP = {*_ADAM, "initial_lr", "params", "param_names", "amsgrad", "correct_bias"}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "adamw": {"maximize": False, "foreach": None, "capturable": False, "differentiable": False,
              "fused": None, "decoupled_weight_decay": True},
    "hf_adamw": {},
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
            ``param_names``.
        schedule: ``scheduler.state_dict()``, None without one.
        kind: one of `KINDS`, where the groups do not tell (an Adam of before PyTorch 2.6).

    Returns:
        The state in PyTorch's names, without `CONSTANTS`.

    Raises:
        ValueError: an optimizer without a counterpart, names that do not fit the groups, or a
            state with other entries than this kind has.
    """
    groups, recorded = _param_groups(state_dict), group_names(state_dict)
    kind = kind or _kind(groups)
    if names is None and recorded is None:
        raise ValueError(f"the optimizer numbers its parameters: {HOW}")
    named = [list(group) for group in (recorded if names is None else names)]
    lengths = [len(group) for group in named], [len(group["params"]) for group in groups]
    if lengths[0] != lengths[1]:
        raise ValueError(f"names for groups of {lengths[0]} parameters, the state has {lengths[1]}")
    if recorded is not None and named != recorded:
        raise ValueError("the names given are not those that the state's groups record")
    indices = [index for group in groups for index in group["params"]]
    name_of = dict(zip(indices, chain(*named), strict=True))
    moments: dict[str, dict[str, np.ndarray]] = {}
    steps: dict[str, int] = {}
    for index, entry in state_dict["state"].items():
        if index not in name_of:
            raise ValueError(f"state of parameter {index}, which no parameter group has")
        _read_entry(name_of[index], entry, moments, steps)
    read = tuple(_read_group(kind, g, listed) for g, listed in zip(groups, named, strict=True))
    position = _position(schedule) if schedule else None
    return OptimizerState("torch", kind, read, moments, steps, position)


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
    torch_side()
    if state.side != "torch":
        raise ValueError("this state is in Paddle's names: convert it first")
    entries: dict[int, dict[str, Any]] = {}
    written: list[dict[str, Any]] = []
    index = 0
    for group in _ordered_groups(state, names):
        params = range(index, index + len(group.names))
        index += len(group.names)
        written.append(_written_group(state.kind, group, list(params)))
        for number, name in zip(params, group.names, strict=True):
            entry = _written_entry(state, name)
            if entry:
                entries[number] = entry
    return {"state": entries, "param_groups": written}


def schedule_dict(state: OptimizerState, names: Names | None = None) -> dict[str, Any]:
    """Make what the ``load_state_dict`` of a ``LambdaLR`` takes (transformers' schedules are it).

    Args:
        state: in PyTorch's names, with a place in a schedule.
        names: the order of the optimizer that it drives; the state's own groups when None.
    """
    groups = _ordered_groups(state, names)
    return {
        "base_lrs": [g.rate if g.initial_rate is None else g.initial_rate for g in groups],
        "last_epoch": state.position,
        "_step_count": state.position + 1,
        "_is_initial": False,
        "_get_lr_called_within_step": False,
        "_last_lr": [group.rate for group in groups],
        "lr_lambdas": [None] * len(groups),
    }


def group_names(state_dict: Mapping[str, Any]) -> list[list[str]] | None:
    """Return the names that the groups themselves record, None when they do not.

    What DataParallel or torch.compile put before all of them is left out.

    Raises:
        ValueError: not the state dict of an optimizer.
    """
    groups = _param_groups(state_dict) or [{}]
    if not all("param_names" in group for group in groups):
        return None
    names = [list(group["param_names"]) for group in groups]
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for group in names for name in group):
            names = [[name.removeprefix(wrapper) for name in group] for group in names]
    return names


def torch_side() -> ModuleType:
    """PyTorch itself, or a refusal."""
    return torch_or_refuse("the PyTorch side of a training's state needs torch: install it")


def _param_groups(state_dict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    groups, state = state_dict.get("param_groups"), state_dict.get("state")
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise ValueError("not the state dict of a PyTorch optimizer: no 'state' and 'param_groups'")
    for group in groups:
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
            raise ValueError("an entry of the optimizer's 'param_groups' has no list of 'params'")
        if not all(isinstance(name, str) for name in group.get("param_names", ())):
            raise ValueError("'param_names' of the optimizer's 'param_groups' are no names")
    if not all(isinstance(entry, Mapping) for entry in state.values()):
        raise ValueError("the optimizer's 'state' of a parameter is no dict")
    return groups


def _kind(groups: Sequence[Mapping[str, Any]]) -> str:
    keys = set(groups[0]) if groups else set()
    if keys >= _ADAM | {"correct_bias"}:
        return "hf_adamw"
    if keys >= _ADAM | {"amsgrad"}:
        is_decoupled = groups[0].get("decoupled_weight_decay")
        if is_decoupled or not any(group["weight_decay"] for group in groups):
            return "adamw"  # without decay Adam is the same
        if is_decoupled is None:
            raise ValueError(
                "Adam or AdamW: before PyTorch 2.6 the state does not say which; say --optimizer "
                "adamw, if it is one"
            )
    raise ValueError(
        "an optimizer without a counterpart here (its options: "
        f"{', '.join(sorted(keys - {'params'})) or 'none'}); known are AdamW, Adam without decay "
        "and transformers' AdamW"
    )


def _read_entry(
    name: str,
    entry: Mapping[str, Any],
    moments: dict[str, dict[str, np.ndarray]],
    steps: dict[str, int],
) -> None:
    """Add what the state holds of one weight to the moments and counts."""
    torch = torch_side()
    for key, value in entry.items():
        if key == "step":
            number = value.item() if getattr(value, "ndim", None) == 0 else value
            if not isinstance(number, int | float) or not float(number).is_integer():
                raise ValueError(f"{name}: step {number!r} is no whole number of updates")
            steps[name] = int(number)
        elif key not in _KEYS:
            raise ValueError(f"{name}: the state holds {key!r}, which has no counterpart in Paddle")
        elif value is not None:
            if not isinstance(value, torch.Tensor):
                raise ValueError(f"{name}: {key} is a {type(value).__name__}, not a tensor")
            array = to_numpy(f"{name}: a moment", value.cpu())
            moments.setdefault(_KEYS[key], {})[name] = array


def _read_group(kind: str, group: Mapping[str, Any], names: Sequence[str]) -> Group:
    if group.get("maximize"):
        raise ValueError("maximize has no counterpart in Paddle")
    betas = group.get("betas", (0.0, 0.0))
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ValueError(f"a parameter group's betas are {betas!r}, expected two numbers")
    spelt = {"amsgrad": False, **group, "beta1": betas[0], "beta2": betas[1]}
    return Group(
        tuple(name for name in names if not name.endswith(CONSTANTS)),
        _number(group, "lr"),
        None if group.get("initial_lr") is None else _number(group, "initial_lr"),
        options_of(kind, lambda key: spelt.get(key) if key in FLAGS else _number(spelt, key)),
        {key: value for key, value in group.items() if key not in _GROUP},
    )


def _number(group: Mapping[str, Any], key: str) -> float:
    value = group.get(key)
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a parameter group's {key} is {value!r}, expected a number")
    return float(value)


def _position(schedule: Mapping[str, Any]) -> int:
    position = schedule.get("last_epoch")
    if isinstance(position, bool) or not isinstance(position, int):
        raise ValueError("the scheduler's state has no 'last_epoch': not one of PyTorch's")
    return position


def _ordered_groups(state: OptimizerState, names: Names | None) -> Sequence[Group]:
    """Return the state's weights in another order, and the constants that it lists."""
    if names is None:
        return state.groups
    group_of = {name: group for group in state.groups for name in group.names}
    listed = [name for group in names for name in group if not name.endswith(CONSTANTS)]
    if sorted(listed) != sorted(group_of):
        odd = sorted(set(listed) ^ set(group_of)) or ["a name given twice"]
        raise ValueError(f"the order names {len(listed)} parameters, the state has "
                         f"{len(group_of)}: first difference {odd[0]}")  # fmt: skip
    groups = []
    for members in names:
        parts = [group_of[name] for name in members if name in group_of] or [state.groups[0]]
        if any((part.options, part.rate) != (parts[0].options, parts[0].rate) for part in parts):
            raise ValueError("a parameter group of the order mixes weights of different options")
        groups.append(dataclasses.replace(parts[0], names=tuple(members)))
    return groups


def _written_group(kind: str, group: Group, params: list[int]) -> dict[str, Any]:
    options = dict(group.options)
    betas = (options.pop("beta1"), options.pop("beta2"))
    if kind == "hf_adamw":
        options.pop("amsgrad", None)
    written = {"lr": group.rate, "betas": betas, **options, **_DEFAULTS[kind], **group.extra}
    if group.initial_rate is not None:
        written["initial_lr"] = group.initial_rate
    return written | {"params": params, "param_names": list(group.names)}


def _written_entry(state: OptimizerState, name: str) -> dict[str, Any]:
    arrays = {kind: state.moments[kind][name] for kind in state.moment_kinds
              if name in state.moments.get(kind, {})}  # fmt: skip
    if not arrays:
        return {}
    step: Any = state.steps[name]  # transformers counts in Python
    if state.kind != "hf_adamw":
        double = arrays["moment1"].dtype == np.float64
        step = from_numpy(name, np.asarray(step, np.float64 if double else np.float32))
    return {"step": step} | {_SPELT[k]: from_numpy(name, array) for k, array in arrays.items()}
