"""The command that moves a whole training: weights, optimizer's state and place in the schedule.

PyTorch's side is one torch file with the weights, ``optimizer`` and ``lr_scheduler`` or
``scheduler``; Paddle's a folder with the weights and `FILE`, for any loop of Paddle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle.atomic import atomic_directory, atomic_file, hold_beside
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.convert import OURS, check_free, convert_file, written_prefix
from sot_paddle.convert.engine.known_models import registry_name
from sot_paddle.convert.engine.registry import find_table
from sot_paddle.convert.formats.source import open_source
from sot_paddle.convert.formats.torch_files import SUFFIXES, from_numpy, load_safely, save
from sot_paddle.convert.state.record import FILE, OptimizerState, convert, read_state, write_state
from sot_paddle.convert.state.torch_optimizer import (
    HOW,
    from_torch,
    schedule_dict,
    to_torch,
    torch_side,
)
from sot_paddle.reading import named_in_refusals, read_json

WEIGHTS = "model.safetensors"

_OPTIMIZERS = ("optimizer", "optimizer_state_dict")
_REMEDY = "; save state_dict() of model, optimizer and scheduler, and numbers, where it was made"
_SCHEDULERS = ("lr_scheduler", "scheduler", "lr_scheduler_state_dict", "scheduler_state_dict")


@dataclass(frozen=True)
class StateRequest:
    """What to convert, and how.

    Attributes:
        source: (side, path); a side is "torch" or "paddle".
        target: (the other side, path).
        layout: key of ``TABLES``: PyTorch's names.
        model: registry name; what the source says when "".
        names: JSON file with the names of PyTorch's parameter groups.
        optimizer: kind of PyTorch's optimizer, where its state does not tell.
        unused: weights that no gradient has reached yet are no mistake.
        overwrite: replace an existing target.
    """

    source: tuple[str, Path]
    target: tuple[str, Path]
    layout: str
    model: str = ""
    names: Path | None = None
    optimizer: str = ""
    unused: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        sides = (self.source[0], self.target[0])
        if sorted(sides) != ["paddle", "torch"]:
            raise ValueError(f"--from {sides[0]} --to {sides[1]}: expected torch and paddle")

    def check_target(self) -> None:
        """Refuse a target that may not be written.

        Raises:
            ValueError: an unknown suffix, no folder for it, it exists, or it is the source.
        """
        side, target = self.target
        if side == "torch" and target.suffix not in SUFFIXES:
            raise ValueError(f"{target}: expected a file that ends in {', '.join(SUFFIXES)}")
        if side == "paddle" and target.suffix:
            raise ValueError(f"{target}: expected a folder (a name without a suffix)")
        sources, ours, is_folder = (self.source[1],), {*OURS, FILE}, side == "paddle"
        check_free(target, sources, ours, directory=is_folder, overwrite=self.overwrite)


def convert_state(request: StateRequest) -> str:
    """Convert a checkpoint of a training; the target appears whole or not at all.

    Args:
        request: what and how.

    Returns:
        What was done, for a console.

    Raises:
        ValueError: anything wrong with the request or the source, by name.
        OSError: reading or writing failed; the target is as it was.
    """
    place, target = request.source[1], request.target[1]
    if not place.exists():
        raise ValueError(f"{place}: no such file or folder")
    request.check_target()
    notes: list[str] = []
    with hold_beside(target):
        request.check_target()  # another command may have written it meanwhile
        move = _to_paddle if request.source[0] == "torch" else _to_torch
        state = move(request, notes)
    step = max(state.steps.values(), default=0)
    rates = ", ".join(f"{rate:.6g}" for rate in dict.fromkeys(g.rate for g in state.groups))
    count = sum(len(arrays) for arrays in state.moments.values())
    lines = [
        f"wrote {target}: {state.kind}, {len(state.names)} weights, {count} moments, after {step} "
        f"updates, learning rate {rates}",
        *(f"note: {note}" for note in notes),
    ]
    return "\n".join(lines)


def read_names(path: Path) -> list[list[str]]:
    """Read a JSON list of groups, each a list of names.

    Raises:
        ValueError: not that.
    """
    groups = read_json(path, object)
    good = isinstance(groups, list) and all(isinstance(group, list) for group in groups)
    if not good or not all(isinstance(name, str) for group in groups for name in group):
        raise ValueError(f"{path}: expected a list of parameter groups, each a list of names")
    return groups


def _to_paddle(request: StateRequest, notes: list[str]) -> OptimizerState:
    place, target = request.source[1], request.target[1]
    if place.suffix not in SUFFIXES or not place.is_file():
        raise ValueError(f"{place}: expected a file that ends in {', '.join(SUFFIXES)}")
    model = _model(request, {})
    find_table(request.layout, model)  # refused before a large file is read
    content = load_safely(place, torch_side(), "plain data", _REMEDY)
    optimizer = _first(content, _OPTIMIZERS) if isinstance(content, Mapping) else None
    if not isinstance(optimizer, Mapping):
        raise ValueError(f"{place}: no optimizer under {' or '.join(_OPTIMIZERS)}")
    schedule = _first(content, _SCHEDULERS)
    source = open_source(place)
    with named_in_refusals(place):
        plan = build_plan(request.layout, model, source.shapes, config=source.config)
        names = None if request.names is None else read_names(request.names)
        schedule = schedule if isinstance(schedule, Mapping) else None
        state = from_torch(optimizer, names, schedule=schedule, kind=request.optimizer)
        if state.position is None:
            notes.append("no state of a scheduler: the learning rate counts as fixed")
        moved = convert(state, plan)
        moved.check(plan.destination_shapes, untouched=request.unused)
    if source.averaged is False:
        notes.append("the averaged weights are passed over")
    with atomic_directory(target) as folder:
        source = dataclasses.replace(source, notes=[])
        ends = (str(place), str(target))
        manifest = convert_file(source, folder, request.layout, model, recorded=ends)
        write_state(folder / FILE, moved)
    notes += manifest.notes
    return moved


def _to_torch(request: StateRequest, notes: list[str]) -> OptimizerState:
    place, target = request.source[1], request.target[1]
    state = read_state(place)
    if request.names is None:
        raise ValueError(f"PyTorch's optimizer numbers its parameters: {HOW}")
    names = read_names(request.names)
    source = open_source(place / WEIGHTS)
    model = _model(request, source.metadata)
    prefix, shapes = written_prefix(source, request.layout), source.shapes
    table = find_table(request.layout, model)
    with named_in_refusals(source.path):
        plan = build_plan(request.layout, model, shapes, reverse=True, prefix=prefix)
        state.check(shapes, untouched=request.unused)
        moved = dataclasses.replace(convert(state, plan), masters={})
    tensors = {**source.tensors, **state.masters}  # instead of half precision
    weights = {n: from_numpy(n, array) for n, array in plan.apply(tensors).items()}
    content: dict[str, Any] = dict.fromkeys(table.written_under or ("state_dict",), weights)
    content["optimizer"] = to_torch(moved, names)
    if moved.position is not None:
        content["lr_scheduler"] = schedule_dict(moved, names)
    content["step"] = max(moved.steps.values(), default=0)
    with atomic_file(target) as handle:
        save(torch_side(), content, handle)
    return moved


def _model(request: StateRequest, metadata: Mapping[str, str]) -> str:
    model = request.model or metadata.get("model", "")
    if not model:
        raise ValueError("--model: the source does not say which model it is of; name it")
    return registry_name(model)


def _first(content: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((content[key] for key in keys if content.get(key) is not None), None)
