"""The checkpoints of this project's Trainer: the state of their optimizer, groups and rates."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from sot_paddle.checkpoint import Tensors, read_tensors
from sot_paddle.convert.optimizer.optimizer_accumulators import counts_of, without_powers
from sot_paddle.convert.optimizer.optimizer_file import split_arrays
from sot_paddle.convert.optimizer.optimizer_state import Group, OptimizerState, Schedule
from sot_paddle.reading import read_object
from sot_paddle.runtime import quiet_imports
from sot_paddle.train import checkpointing

WEIGHTS, AVERAGES, OPTIMIZER = "model.safetensors", "ema.safetensors", "optimizer.safetensors"
TRAINER_STATE = "trainer_state.json"
_BETAS = (0.9, 0.999)  # of a text run, which has no option for them


@dataclass(frozen=True)
class TrainerCheckpoint:
    """An opened checkpoint.

    Attributes:
        folder: where it is.
        state: content of state.json.
        progress: content of trainer_state.json.
        weights, arrays: the model's and the optimizer's tensors.
        averages: the moving average's tensors, None for a text run.
        metadata: of the weights.
    """

    folder: Path
    state: Mapping[str, Any]
    progress: Mapping[str, Any]
    weights: Tensors
    arrays: Tensors
    averages: Tensors | None
    metadata: Mapping[str, str]

    @property
    def identity(self) -> Mapping[str, Any]:
        """The options that decide what the run computes."""
        return self.state["identity"]

    @property
    def is_text(self) -> bool:
        """Whether tools/train_glue.py wrote it (else tools/train_image.py)."""
        return "task_name" in self.identity


def is_checkpoint(place: Path) -> bool:
    """Whether a folder is a checkpoint of the Trainer, or a run's folder with one."""
    return _find(place) is not None


def open_checkpoint(place: Path) -> TrainerCheckpoint:
    """Open a checkpoint that can be resumed from, or the last one of a run's folder.

    Raises:
        ValueError: there is none, it is not whole, or of another command.
    """
    folder = _find(place)
    if folder is None:
        raise ValueError(
            f"{place}: no checkpoint of the Trainer with its state (checkpoint-N with state.json)"
        )
    if not checkpointing.is_whole(folder):
        raise ValueError(f"{folder}: not whole: a file's size or checksum is not the manifest's")
    weights, metadata = read_tensors(folder / WEIGHTS)
    arrays, _ = read_tensors(folder / OPTIMIZER)
    has_averages = (folder / AVERAGES).is_file()
    found = TrainerCheckpoint(
        folder=folder,
        state=read_object(folder / checkpointing.STATE),
        progress=read_object(folder / TRAINER_STATE),
        weights=weights,
        arrays=arrays,
        averages=read_tensors(folder / AVERAGES)[0] if has_averages else None,
        metadata=metadata,
    )
    if "opt" not in found.identity and not found.identity.keys() >= {"task_name", "warmup_steps"}:
        raise ValueError(
            f"{folder}: of another command; expected a checkpoint of tools/train_glue.py or "
            "tools/train_image.py"
        )
    return found


def read_trainer(checkpoint: TrainerCheckpoint) -> OptimizerState:
    """The optimizer's state of a checkpoint, in Paddle's names.

    Raises:
        ValueError: tensors and options contradict one another.
    """
    moments, masters = split_arrays(checkpoint.arrays)
    moments, powers = without_powers(moments)
    schedule = checkpoint.state["schedule"]
    shapes = {name: array.shape for name, array in moments.get("moment1", {}).items()}
    kind, groups = trained_groups(checkpoint, shapes, float(schedule["last_lr"]))
    counters, done = checkpoint.state.get("counters", {}), int(checkpoint.state["step"])
    steps = counts_of(powers, groups, counters, done)
    name = "LambdaDecay" if checkpoint.is_text else "PerEpoch"
    place = Schedule(int(schedule["last_epoch"]), name)
    return OptimizerState("paddle", kind, groups, moments, steps, place, masters)


def trained_groups(
    checkpoint: TrainerCheckpoint, shapes: Mapping[str, tuple[int, ...]], rate: float
) -> tuple[str, tuple[Group, ...]]:
    """Kind and parameter groups of the optimizer that the Trainer builds: decayed first.

    Args:
        checkpoint: gives the options.
        shapes: of the trained weights.
        rate: of the next update.
    """
    optimizer = _loaded("sot_paddle.train.optimizer")

    made, text = checkpoint.identity, checkpoint.is_text
    rule: Callable[[Any], set[str]] = (
        optimizer.decayed_names if text else optimizer.decayed_names_by_shape
    )
    decayed = rule(_Named(shapes))
    beta1, beta2 = _BETAS if text else made["opt_betas"]
    kind = made["optimizer"] if text else made["opt"]
    options = {
        "beta1": float(beta1),
        "beta2": float(beta2),
        "eps": float(made["adam_epsilon"] if text else made["opt_eps"]),
        "amsgrad": False,
        **({"correct_bias": made.get("correct_bias", True)} if kind == "hf_adamw" else {}),
    }
    initial = float(made["learning_rate"] if text else made["lr"])
    parts = ((float(made["weight_decay"]), True), (0.0, False))
    groups = (
        Group(
            tuple(name for name in shapes if (name in decayed) is wanted),
            rate,
            initial,
            {"weight_decay": decay, **options},
        )
        for decay, wanted in parts
    )
    return kind, tuple(group for group in groups if group.names)


def scheduled_rate(checkpoint: TrainerCheckpoint, position: int) -> float | None:
    """The rate that the run's own schedule gives after so many updates; None when unknown."""
    schedule = _loaded("sot_paddle.train.schedule")

    made, total = checkpoint.identity, int(checkpoint.progress["max_steps"])
    if checkpoint.is_text:
        warmup = made["warmup_steps"] or made.get("warmup_proportion", 0.0) * total
        factor = schedule.rate_factor(made["lr_scheduler"], position, warmup, total)
        return made["learning_rate"] * factor
    names = ("epochs", "min_lr", "warmup_lr", "warmup_epochs", "cooldown_epochs")
    rates = schedule.EpochRates(
        made["lr"], kind=made["sched"], **{name: made[name] for name in names}
    )
    if made["max_steps"] > 0 or total % rates.total_epochs:
        return None  # the run is cut short: the number of steps of an epoch is not recorded
    return rates.rate(position // (total // rates.total_epochs))


def _loaded(name: str) -> ModuleType:
    """A module that loads Paddle: not before it is needed."""
    try:
        with quiet_imports():
            return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(
            f"a checkpoint of the Trainer follows its rules, which need Paddle ({error}): convert "
            "it where paddle is installed"
        ) from error


class _Named:
    """Names and shapes as the rules of decay ask a model for them."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def named_parameters(self) -> list[tuple[str, SimpleNamespace]]:
        """Every weight, trained."""
        shapes = self._shapes.items()
        return [(name, SimpleNamespace(stop_gradient=False, shape=list(s))) for name, s in shapes]


def _find(place: Path) -> Path | None:
    folders = [place, place / checkpointing.POINTER]
    return next((one for one in folders if (one / checkpointing.STATE).is_file()), None)
