"""A PyTorch training's checkpoint: Hugging Face's folder or one torch file, opened and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import atomic_file
from sot_paddle.checkpoint import Tensors
from sot_paddle.convert.engine.layout import Layout
from sot_paddle.convert.formats.hf_config import as_json
from sot_paddle.convert.formats.source import Source, open_source, read_json
from sot_paddle.convert.formats.torch_files import SUFFIXES
from sot_paddle.convert.optimizer.optimizer_state import OptimizerState
from sot_paddle.convert.optimizer.optimizer_torch import (
    Names,
    load_plain,
    plain_tensors,
    save_plain,
    schedule_dict,
)
from sot_paddle.convert.optimizer.optimizer_torch import to_torch as optimizer_dict

OPTIMIZER, SCHEDULER, TRAINER_STATE = "optimizer.pt", "scheduler.pt", "trainer_state.json"
"""Files of a folder, as transformers' Trainer names them."""

_OPTIMIZERS = ("optimizer", "optimizer_state_dict")
_SCHEDULERS = ("lr_scheduler", "scheduler", "lr_scheduler_state_dict", "scheduler_state_dict")
_STEPS = ("global_step", "step")


@dataclass(frozen=True)
class TorchCheckpoint:
    """An opened checkpoint.

    Attributes:
        place: what was opened.
        source: its weights, with config and vocabulary.
        optimizer: ``optimizer.state_dict()``.
        schedule: ``scheduler.state_dict()``, None without.
        step: updates of the run as it says itself, None when it does not.
        averages: averaged weights of an image training, None without.
    """

    place: Path
    source: Source
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any] | None
    step: int | None
    averages: Tensors | None = None

    @property
    def order(self) -> list[str] | None:
        """Names in the model's order; None for safetensors, which does not keep it."""
        return list(self.source.tensors) if self.source.keeps_order else None


def open_torch(place: Path, table: Layout, key: str = "") -> TorchCheckpoint:
    """Open a folder with ``optimizer.pt`` beside the weights, or a torch file that holds both.

    Args:
        place: folder or file.
        table: of the layout, which knows whether averaged weights have a place.
        key: of the entry with the weights, where the file has several.

    Raises:
        ValueError: nothing there, no optimizer in it, damaged, or more than plain data.
    """
    if place.is_dir():
        return _open_folder(place, key)
    if place.suffix not in SUFFIXES:
        raise ValueError(
            f"{place}: expected the folder of a checkpoint, or a file that ends in "
            f"{', '.join(SUFFIXES)}"
        )
    if not place.is_file():
        raise ValueError(f"{place}: no such file")
    content = _mapping(place, load_plain(place))
    held = _first(content, _OPTIMIZERS)
    if not isinstance(held, Mapping):
        raise ValueError(f"{place}: no optimizer under {' or '.join(_OPTIMIZERS)}")
    schedule = _first(content, _SCHEDULERS)
    source = open_source(place, key=key)
    averaged = source.averaged is False and bool(table.averaged)
    return TorchCheckpoint(
        place,
        source,
        held,
        schedule if isinstance(schedule, Mapping) else None,
        _step(content),
        open_source(place, ema=True).tensors if averaged else None,
    )


def _open_folder(place: Path, key: str) -> TorchCheckpoint:
    if not (place / OPTIMIZER).is_file():
        raise ValueError(f"{place}: no {OPTIMIZER}; expected the folder of a checkpoint")
    schedule = place / SCHEDULER
    told = read_json(place / TRAINER_STATE) or {}
    return TorchCheckpoint(
        place,
        open_source(place, key=key),
        _mapping(place / OPTIMIZER, load_plain(place / OPTIMIZER)),
        _mapping(schedule, load_plain(schedule)) if schedule.is_file() else None,
        _step(told),
    )


def write_training(folder: Path, state: OptimizerState, names: Names, told: Mapping) -> None:
    """Write optimizer, schedule and place beside the weights, as transformers' Trainer does.

    Args:
        folder: existing.
        state: in PyTorch's names.
        names: order of the optimizer that will load it.
        told: what is known of the run: step, epoch, max_steps, num_train_epochs.
    """
    _save(folder / OPTIMIZER, optimizer_dict(state, names))
    if state.schedule is not None:
        _save(folder / SCHEDULER, schedule_dict(state, names))
    content = {
        "best_metric": None,
        "best_model_checkpoint": None,
        "epoch": told.get("epoch"),
        "global_step": told["step"],
        "is_local_process_zero": True,
        "is_world_process_zero": True,
        "log_history": [],
        "max_steps": told.get("max_steps") or 0,
        "num_train_epochs": told.get("num_train_epochs") or 0,
        "total_flos": 0,
        "trial_name": None,
        "trial_params": None,
    }
    with atomic_file(folder / TRAINER_STATE) as handle:
        handle.write(as_json(content))


def write_file(
    path: Path,
    weights: Mapping[str, Mapping[str, np.ndarray]],
    state: OptimizerState,
    names: Names,
    told: Mapping,
) -> None:
    """Write one torch file with everything; it appears complete or not at all.

    Args:
        path: destination.
        weights: key -> weights in PyTorch's names; one mapping under two keys is stored once.
        state: in PyTorch's names.
        names: order of the optimizer that will load it.
        told: what is known of the run.
    """
    made: dict[int, dict[str, Any]] = {}
    for held in weights.values():
        if id(held) not in made:
            made[id(held)] = plain_tensors(held)
    content: dict[str, Any] = {key: made[id(held)] for key, held in weights.items()}
    content["optimizer"] = optimizer_dict(state, names)
    if state.schedule is not None:
        content["lr_scheduler"] = schedule_dict(state, names)
    content["step"] = told["step"]
    epoch = told.get("epoch")
    if epoch is not None and float(epoch).is_integer() and epoch >= 1:
        content["epoch"] = int(epoch) - 1  # as timm counts: the one just finished
    _save(path, content)


def _save(path: Path, content: Any) -> None:
    with atomic_file(path) as handle:
        save_plain(content, handle)


def _mapping(path: Path, content: Any) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a dict, got a {type(content).__name__}")
    return content


def _first(content: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((content[key] for key in keys if content.get(key) is not None), None)


def _step(told: Mapping[str, Any]) -> int | None:
    step = _first(told, _STEPS)
    if step is None:
        return None
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"the checkpoint's step is {json.dumps(step, default=str)}, no count")
    return step
