"""The command that moves a whole training: weights, optimizer's state and place in the schedule."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import atomic_directory
from sot_paddle.checkpoint import as_tensors
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.conversion_plan import ConversionPlan
from sot_paddle.convert.engine.convert import convert_file
from sot_paddle.convert.engine.known_models import TEXT_FAMILIES, known_traits, registry_name
from sot_paddle.convert.engine.registry import find_table
from sot_paddle.convert.formats.source import open_source
from sot_paddle.convert.formats.torch_files import SUFFIXES
from sot_paddle.convert.optimizer.optimizer_checkpoint import (
    TorchCheckpoint,
    open_torch,
    write_file,
    write_training,
)
from sot_paddle.convert.optimizer.optimizer_file import FILE, read_state, write_state
from sot_paddle.convert.optimizer.optimizer_names import (
    CONSTANTS,
    find_names,
    frozen_names,
    ordered_groups,
    read_names,
    trained_names,
)
from sot_paddle.convert.optimizer.optimizer_request import StateRequest, check_target
from sot_paddle.convert.optimizer.optimizer_resume import write_trainer
from sot_paddle.convert.optimizer.optimizer_state import OptimizerState, PlanWay, convert
from sot_paddle.convert.optimizer.optimizer_torch import Names, from_torch, group_names
from sot_paddle.convert.optimizer.optimizer_trainer import (
    WEIGHTS,
    TrainerCheckpoint,
    is_checkpoint,
    open_checkpoint,
    read_trainer,
)
from sot_paddle.reading import named_in_refusals
from sot_paddle.train import checkpointing, folder_lock, run_record


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
    check_target(request)
    move = _to_paddle if request.source[0] == "torch" else _to_torch
    notes: list[str] = []
    with _locked(target):
        check_target(request)  # another command may have written it meanwhile
        state, step = move(request, notes)
    rates = ", ".join(f"{rate:.6g}" for rate in dict.fromkeys(g.rate for g in state.groups))
    count = sum(len(held) for held in state.moments.values())
    lines = [
        f"wrote {target}: {state.kind}, {len(state.names)} weights, {count} moments, after {step} "
        f"updates, learning rate {rates}",
        *(f"note: {note}" for note in notes),
    ]
    return "\n".join(lines)


def _locked(target: Path) -> contextlib.AbstractContextManager[None]:
    """The lock of the run in whose folder the target lies, or of the target."""
    around = target.parent
    of_a_run = (around / run_record.RECORD).is_file() or (around / folder_lock.LOCK).is_file()
    return folder_lock.hold(around) if of_a_run else folder_lock.hold_beside(target)


def _to_paddle(request: StateRequest, notes: list[str]) -> tuple[OptimizerState, int]:
    place, target = request.source[1], request.target[1]
    like = open_checkpoint(request.like) if request.like else None
    model = _model(request, like.metadata if like else {})
    held = open_torch(place, find_table(request.layout, model), request.key)
    with named_in_refusals(held.source.path):
        plan = build_plan(
            request.layout, model, held.source.tensors.shapes, config=held.source.config
        )
        state = _read_torch(request, held, plan, notes)
        moved = convert(state, PlanWay(plan))
        moved.check(plan.destination_shapes, untouched=request.unused)
    step = _agreed_step(request, held.step, moved, notes)
    if like is not None:
        beside = target.parent.resolve() == like.folder.resolve().parent
        if beside and target.name != f"{checkpointing.PREFIX}{step}":
            raise ValueError(f"{target}: in the run's folder call it {checkpointing.PREFIX}{step}")
        averages = plan.apply(held.averages) if held.averages is not None else None
        weights = plan.apply(held.source.tensors)
        moved, said = write_trainer(like, moved, weights, target, averages=averages, step=step)
        notes += said
        again = "" if beside else f" and --resume {target}"
        notes.append(f"continue it with the command of that run{again}")
        return moved, step
    if held.averages is not None:
        notes.append("the averaged weights are passed over; --like a run takes them")
    source = held.source if place.is_dir() else dataclasses.replace(held.source, notes=[])
    with atomic_directory(target) as folder:
        manifest = convert_file(
            source, folder, request.layout, model, recorded=(str(place), str(target))
        )
        write_state(folder / FILE, moved)
    notes += manifest.notes
    return moved, step


def _read_torch(
    request: StateRequest, held: TorchCheckpoint, plan: ConversionPlan, notes: list[str]
) -> OptimizerState:
    names, rule = _torch_names(request.names, held, plan)
    notes.append(f"parameter groups: {rule}")
    state = from_torch(held.optimizer, names, schedule=held.schedule, kind=request.optimizer)
    state = _without_constants(state)
    state.check(held.source.tensors.shapes, untouched=request.unused)
    if held.schedule is None:
        notes.append("no state of a scheduler: the place in the schedule is the update's")
    return state


def _torch_names(
    file: Path | None, held: TorchCheckpoint, plan: ConversionPlan
) -> tuple[list[list[str]], str]:
    if file is not None:
        return read_names(file), f"names from {file}"
    order = [] if group_names(held.optimizer) else trained_names(plan, held.order)
    shapes = held.source.tensors.shapes
    return find_names(held.optimizer, order, shapes, frozen_names(plan))


def _without_constants(state: OptimizerState) -> OptimizerState:
    groups = (
        dataclasses.replace(g, names=tuple(n for n in g.names if not n.endswith(CONSTANTS)))
        for g in state.groups
    )
    return dataclasses.replace(state, groups=tuple(groups))


def _with_constants(state: OptimizerState, names: Names) -> OptimizerState:
    """The state with PyTorch's parameters that hold no weight, in the order's own groups."""
    groups = list(state.groups)
    for listed in names:
        constants = tuple(name for name in listed if name.endswith(CONSTANTS))
        for number, group in enumerate(groups):
            if constants and set(group.names) & set(listed):
                groups[number] = dataclasses.replace(group, names=(*group.names, *constants))
                break
    return dataclasses.replace(state, groups=tuple(groups))


def _to_torch(request: StateRequest, notes: list[str]) -> tuple[OptimizerState, int]:
    place, target = request.source[1], request.target[1]
    run = open_checkpoint(place) if is_checkpoint(place) else None
    folder = run.folder if run else place
    state = read_trainer(run) if run else _read_paddle(place)
    source = open_source(folder / WEIGHTS)
    model = _model(request, source.metadata)
    ours = source.metadata.get("layout") == request.layout
    prefix = source.metadata.get("source_prefix") if ours else None
    if target.suffix not in SUFFIXES:
        prefix = prefix or None  # in a folder transformers wants it
    shapes = source.tensors.shapes
    find_table(request.layout, model)
    with named_in_refusals(source.path):
        plan = build_plan(request.layout, model, shapes, reverse=True, prefix=prefix)
        state.check(shapes, untouched=request.unused)
        moved = dataclasses.replace(convert(state, PlanWay(plan)), masters={})
    source.tensors = as_tensors({**source.tensors, **state.masters})  # instead of half precision
    names = _target_names(request, moved, plan, notes)
    moved = _with_constants(moved, names)
    step = _agreed_step(request, run.state["step"] if run else None, moved, notes)
    if moved.schedule is not None and moved.schedule.kind == "PerEpoch":
        moved = dataclasses.replace(moved, schedule=None)
        notes.append("the schedule goes by the epoch: no scheduler state is written")
    averages = _averages(request, run, plan, notes)
    told = _told(run, step)
    if target.suffix in SUFFIXES:
        weights = plan.apply(source.tensors)
        write_file(target, _weights_by_key(request, plan, weights, averages), moved, names, told)
        return moved, step
    with atomic_directory(target) as made:
        ends = (str(folder), str(target))
        convert_file(source, made, request.layout, model, reverse=True, recorded=ends)
        write_training(made, moved, names, told)
    return moved, step


def _averages(
    request: StateRequest, run: TrainerCheckpoint | None, plan: ConversionPlan, notes: list[str]
) -> dict[str, np.ndarray] | None:
    """An image run's moving average in PyTorch's names, where the target has a place for it."""
    if run is None or run.averages is None:
        return None
    keys = find_table(request.layout, plan.model).averaged
    if not keys or request.target[1].suffix not in SUFFIXES:
        notes.append("the moving average of the weights has no place there and is left out")
        return None
    return plan.apply(run.averages)


def _weights_by_key(
    request: StateRequest,
    plan: ConversionPlan,
    weights: Mapping[str, np.ndarray],
    averages: Mapping[str, np.ndarray] | None,
) -> dict[str, Mapping[str, np.ndarray]]:
    """Where a torch file holds which weights."""
    table = find_table(request.layout, plan.model)
    found = dict.fromkeys(table.written_under or ("state_dict",), weights)
    return found if averages is None else {**found, table.averaged[0]: averages}


def _read_paddle(place: Path) -> OptimizerState:
    """The state of a folder that holds weights and state, each safely stored."""
    foreign = [place] if place.is_file() else sorted(place.glob("*.pdopt"))
    if foreign and not (place / FILE).is_file():
        raise ValueError(
            f"{foreign[0]}: Paddle's own file is a pickle and knows no names of weights; where the "
            f"training is, call sot_paddle.convert.optimizer.optimizer_paddle.save('DIR/{FILE}', "
            "optimizer, model)"
            f" and save the weights as DIR/{WEIGHTS}"
        )
    state = read_state(place)
    if not (place / WEIGHTS).is_file():
        raise ValueError(f"{place}: no {WEIGHTS} beside {FILE}")
    return state


def _target_names(
    request: StateRequest, state: OptimizerState, plan: ConversionPlan, notes: list[str]
) -> list[list[str]]:
    """The order of the PyTorch optimizer that will load the state."""
    if request.names is not None:
        return read_names(request.names)
    forward = build_plan(request.layout, plan.model, plan.destination_shapes)
    if request.like is not None:
        like = open_torch(request.like, find_table(request.layout, plan.model), request.key)
        names, rule = _torch_names(None, like, forward)
        notes.append(f"parameter groups as in {request.like}: {rule}")
        return names
    decays = {n: float(g.options["weight_decay"]) for g in state.groups for n in g.names}
    text = known_traits(plan.model).family in TEXT_FAMILIES
    timm = not text and request.layout != "sot_torch_ref"
    first = "not decayed first (timm)" if timm else "decayed first"
    notes.append(f"parameter groups: {first}, in the order of the model; --like takes another's")
    return ordered_groups(decays, trained_names(forward, None), decayed_first=not timm)


def _model(request: StateRequest, metadata: Mapping[str, str]) -> str:
    model = request.model or metadata.get("model", "")
    if not model:
        raise ValueError("--model: the source does not say which model it is of; name it")
    return registry_name(model)


def _agreed_step(
    request: StateRequest, told: int | None, state: OptimizerState, notes: list[str]
) -> int:
    """Updates of the run: as given, as the checkpoint says, as the optimizer counts."""
    counted = state.updates
    step = request.step if request.step is not None else told if told is not None else counted
    if step is None:
        raise ValueError("nothing tells how many updates the run has made: give --step N")
    if step < 1:
        raise ValueError(f"the run has made {step} updates: expected 1 or more (--step N)")
    if counted is not None and counted != step:
        notes.append(
            f"the run counts {step} updates, the optimizer {counted}: some may have been skipped"
        )
    return step


def _told(run: TrainerCheckpoint | None, step: int) -> dict[str, Any]:
    kept = ("epoch", "max_steps", "num_train_epochs")
    progress = run.progress if run else {}
    return {"step": step, **{key: progress[key] for key in kept if key in progress}}
