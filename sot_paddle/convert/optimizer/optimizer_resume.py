"""A new checkpoint of this project's Trainer, in the likeness of another one of the same run.

A checkpoint holds more than PyTorch has to give: the options and the data of the run, random
states, what was evaluated. All that comes from `like`, such as one made by stopping the run after
its first step; weights, moments, counts and place are replaced.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.checkpoint import Tensors, as_tensors, read_tensors, write_tensors
from sot_paddle.config import some
from sot_paddle.convert.optimizer.optimizer_accumulators import stored_arrays, stored_counters
from sot_paddle.convert.optimizer.optimizer_differences import require_same
from sot_paddle.convert.optimizer.optimizer_state import OptimizerState
from sot_paddle.convert.optimizer.optimizer_trainer import (
    AVERAGES,
    OPTIMIZER,
    TRAINER_STATE,
    WEIGHTS,
    TrainerCheckpoint,
    scheduled_rate,
    trained_groups,
)
from sot_paddle.failures import NonFiniteState, StorageFailure
from sot_paddle.train import checkpointing


def write_trainer(
    like: TrainerCheckpoint,
    state: OptimizerState,
    weights: Mapping[str, np.ndarray],
    target: Path,
    *,
    averages: Mapping[str, np.ndarray] | None = None,
    step: int,
) -> tuple[OptimizerState, list[str]]:
    """Write a checkpoint that the Trainer continues; it appears whole or not at all.

    Args:
        like: a checkpoint of the run that is to continue.
        state: in Paddle's names.
        weights: all tensors of the model in Paddle's names; cast to the run's dtype.
        target: folder, replaced when it exists.
        averages: the moving average of an image run; the weights when None.
        step: updates of the run.

    Returns:
        The state with the rate that was written, and notes for the user.

    Raises:
        ValueError: tensors or options are not those of the run.
        OSError: the disk refused.
    """
    state, notes = _fitted_rate(like, state, step)
    _check_state(like, state, weights)
    tensors: dict[str, tuple[Tensors, Mapping[str, str]]] = {
        WEIGHTS: (_fitted(like.weights, weights, "weights"), like.metadata),
        OPTIMIZER: (_accumulators(like, state, weights, notes), {}),
    }
    if like.averages is not None:
        held = weights if averages is None else averages
        _, metadata = read_tensors(like.folder / AVERAGES)
        tensors[AVERAGES] = (_fitted(like.averages, held, "average"), metadata)
        if averages is None:
            notes.append("no averaged weights given: the moving average starts from the weights")
    texts = _texts(like, state, step)
    notes.append("the mean training loss and the evaluations count from here on")
    try:
        checkpointing.write_folder(target, lambda folder: _fill(folder, like, tensors, texts))
    except StorageFailure as error:
        raise OSError(str(error)) from error
    except NonFiniteState as error:
        raise ValueError(str(error)) from error
    return state, notes


def _texts(like: TrainerCheckpoint, state: OptimizerState, step: int) -> dict[str, dict[str, Any]]:
    """The JSON files of the new checkpoint."""
    moved = {
        "step": step,
        "schedule": {"last_epoch": step, "last_lr": _rate(state)},
        "counters": stored_counters(state),
        "progress": _fresh_progress(like.state["progress"]),
        "losses": [[[], 0.0] for _ in like.state["random"]],
        "passing": False,
    }
    return {
        checkpointing.STATE: {**like.state, **moved},
        TRAINER_STATE: _moved_progress(like.progress, step),
    }


def _fill(
    folder: Path,
    like: TrainerCheckpoint,
    tensors: Mapping[str, tuple[Tensors, Mapping[str, str]]],
    texts: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write everything; what is neither given is the other checkpoint's (config, vocabulary)."""
    for file in checkpointing.listed_files(like.folder):
        if "/" not in file and file not in tensors and file not in texts:
            shutil.copyfile(like.folder / file, folder / file)
    for name, (arrays, metadata) in tensors.items():
        write_tensors(folder / name, arrays, metadata)
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content) + "\n", encoding="utf-8")


def _check_state(
    like: TrainerCheckpoint, state: OptimizerState, weights: Mapping[str, np.ndarray]
) -> None:
    state.check({n: tuple(a.shape) for n, a in weights.items()})
    shapes = {name: tuple(weights[name].shape) for name in state.names}
    kind, groups = trained_groups(like, shapes, _rate(state))
    built = OptimizerState("paddle", kind, groups, {})
    require_same(state, built, "the optimizer of that run")
    trained = {name.rpartition("/")[0] for name in like.arrays}
    odd = sorted(trained ^ set(state.names))
    if odd:
        raise ValueError(f"{like.folder} trains other weights than this state: {some(odd)}")


def _rate(state: OptimizerState) -> float:
    rates = {group.rate for group in state.groups}
    if len(rates) > 1:
        raise ValueError(f"groups of different rates {sorted(rates)}: the Trainer has one rate")
    return rates.pop()


def _fitted_rate(
    like: TrainerCheckpoint, state: OptimizerState, step: int
) -> tuple[OptimizerState, list[str]]:
    """The state with the rate of the run's own schedule, when it is the same schedule."""
    expected = scheduled_rate(like, step)
    if expected is None:
        return state, ["the run's schedule at this step is not known: the rate was not compared"]
    if math.isclose(_rate(state), expected):
        return state, []
    before = scheduled_rate(like, step - 1)
    if state.schedule is None and before is not None and math.isclose(_rate(state), before):
        groups = tuple(dataclasses.replace(group, rate=expected) for group in state.groups)
        note = "written before its schedule moved on: the rate is that of the next step"
        return dataclasses.replace(state, groups=groups), [note]
    raise ValueError(
        f"after {step} updates the schedule of {like.folder} gives {expected:.9g}, the state has "
        f"{_rate(state):.9g}: the peak rate, the warm-up or the total steps differ"
    )


def _accumulators(
    like: TrainerCheckpoint,
    state: OptimizerState,
    weights: Mapping[str, np.ndarray],
    notes: list[str],
) -> Tensors:
    """What the optimizer of the run holds, name by name and dtype by dtype."""
    kind = state.moment_kinds[0]
    wanted = {str(like.arrays.specs[f"{name}/{kind}"].dtype) for name in state.names}
    held = {str(state.moments[kind][name].dtype) for name in state.names}
    if wanted != held:
        notes.append(f"moments cast from {'/'.join(sorted(held))} to {'/'.join(sorted(wanted))}")
    arrays = stored_arrays(state.astype(wanted.pop()))
    for name in like.arrays:
        owner, _, accumulator = name.rpartition("/")
        if accumulator == "master_weight" and name not in arrays:
            arrays[name] = np.asarray(weights[owner], np.float32)
    return _fitted(like.arrays, arrays, "optimizer state")


def _fitted(like: Tensors, arrays: Mapping[str, np.ndarray], what: str) -> Tensors:
    """Arrays in the order and the dtypes of others, one to one."""
    odd = sorted(set(like) ^ set(arrays))
    if odd:
        raise ValueError(f"{what}: {some(odd)} on one side only: not a state of that run's model")
    made = {}
    for name, spec in like.specs.items():
        array = np.asarray(arrays[name])
        if tuple(array.shape) != tuple(spec.shape):
            raise ValueError(f"{what}: {name} has shape {array.shape}, that run's {spec.shape}")
        made[name] = np.ascontiguousarray(array, spec.dtype).reshape(spec.shape)
    return as_tensors(made)


def _fresh_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Running sums that begin anew, on the same evaluation data."""
    empty = {"window": [], "loss_sum": 0.0, "best_metric": None, "best_step": 0}
    return {**progress, **empty, "since_best": 0, "evaluations": {}}


def _moved_progress(progress: Mapping[str, Any], step: int) -> dict[str, Any]:
    done = int(progress["global_step"]) or 1
    moved = {**progress, "global_step": step, "epoch": progress["epoch"] * step / done}
    if "consumed_samples" in moved:
        moved["consumed_samples"] = moved["consumed_samples"] * step // done
    return moved | {"log_history": []}
