"""What a command trains and how, and the record of one run of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle import distributed
from sot_paddle.tasks.task import Predictions, Task
from sot_paddle.train import model_folder
from sot_paddle.train.callbacks import StopRequest
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.feeding import Pace


class ModelSource(Protocol):
    """Where a run's model comes from, and what a folder says about it beside its weights.

    Attributes:
        origin: where the initial weights lie, for messages.
        files: what is read from the disk, by the flag that names it; None when it is not given.
    """

    origin: str
    files: Mapping[str, Path | None]

    def build(self, task: Task) -> nn.Layer:
        """The model with fresh weights, drawn from the present random state."""
        ...

    def load(self, model: nn.Layer) -> Sequence[str]:
        """Load the initial weights; returns the names of the tensors that stay fresh."""
        ...

    def about(self, model: nn.Layer) -> str:
        """The model's options that a user wants to see, on one line."""
        ...

    def fill_folder(self, folder: Path, model: nn.Layer, task: Task) -> None:
        """Write everything but the weights that rebuilds the model into a folder."""
        ...


@dataclass(frozen=True)
class Plan:
    """How long a run is and what it does on the way, in one vocabulary for every command.

    Attributes:
        batch_size: examples of each process and forward pass.
        accumulation: forward passes of an optimizer step.
        epochs: passes over the training data.
        log_steps: optimizer steps between log lines.
        save_steps: optimizer steps between checkpoints, 0 for none but those of ``save_epochs``.
        save_epochs: epochs between checkpoints, 0 for none.
        eval_steps: optimizer steps between evaluations, None for each epoch, 0 for never.
        half: mixed precision, ``"float16"`` or ``"bfloat16"``, "" for none.
        half_level: ``"O1"`` or ``"O2"``.
        ema_decay: of the moving average, None for none.
        ema_warmup: the average follows closely at first.
        sync_bn: batch statistics over all processes.
        own_masks: each process draws dropout masks of its own.
        sharding: stage of the optimizer's sharding, "" for none.
    """

    batch_size: int
    accumulation: int
    epochs: float
    log_steps: int
    save_steps: int = 0
    save_epochs: int = 0
    eval_steps: int | None = None
    half: str = ""
    half_level: str = "O1"
    ema_decay: float | None = None
    ema_warmup: bool = False
    sync_bn: bool = True
    own_masks: bool = False
    sharding: str = ""


@dataclass(frozen=True)
class Setup:
    """What a command trains, and how: everything in which kinds of task differ.

    Attributes:
        options: the command's record.
        task: data, loss and scores.
        source: of the model.
        plan: how long.
        optimizer: (options, model with its parameters, pace, optimizer steps of the run) to
            (optimizer, schedule).
    """

    options: Any
    task: Task
    source: ModelSource
    plan: Plan
    optimizer: Callable[[Any, nn.Layer, Pace, int], tuple[Optimizer, LRScheduler]]


@dataclass(frozen=True)
class Kept:
    """What a model said when it was evaluated, about the splits that are predicted as well.

    Attributes:
        step: of the evaluation, as text.
        value: its main score.
        found: split of ``Task.test`` to the outputs.
    """

    step: str
    value: float
    found: Mapping[str, Predictions]


@dataclass
class Run:
    """One run with one seed.

    Attributes:
        setup: what it trains.
        seed: its seed.
        root: its output folder.
        stop: Ctrl-C's request.
        model: the model, once built.
        ema: its moving average, None for none.
        fresh: tensors of the model that the initial weights did not hold.
        result: what the file of scores will hold.
        autocast: context of a forward pass outside of training.
        outputs: of the best evaluation so far, see `Kept`.
    """

    setup: Setup
    seed: int
    root: Path
    stop: StopRequest
    model: nn.Layer | None = None
    ema: ModelEma | None = None
    fresh: Sequence[str] = ()
    result: dict[str, Any] = field(default_factory=dict)
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    outputs: Kept | None = None

    @property
    def task(self) -> Task:
        """What it trains on."""
        return self.setup.task

    @property
    def metric(self) -> str:
        """Name of the score that selects the best: that of the moving average, where there is."""
        return self.task.metric if self.ema is None else f"ema_{self.task.metric}"

    @property
    def identity(self) -> dict[str, Any]:
        """Options and data that a resumed run must share, JSON-ready."""
        return self.setup.options.identity() | {
            "seed": self.seed,
            "processes": distributed.world_size(),
            "train_data": self.task.train.fingerprint,
        }

    @property
    def evaluation_data(self) -> str:
        """Fingerprint of what is evaluated on; another one forgets old results."""
        return ",".join(split.fingerprint for split in self.task.dev.values())

    @property
    def predicted_files(self) -> list[str]:
        """Names of the files that it leaves in its folder beside checkpoints."""
        return [name for split in self.task.test for name in self.task.prediction_files(split)]

    def fill(self, folder: Path) -> None:
        """Write the model into a folder."""
        model_folder.write_weights(folder, self.model, self.ema)
        self.setup.source.fill_folder(folder, self.model, self.task)

    def restore(self, folder: Path) -> None:
        """Take the model from a folder."""
        model_folder.read_weights(folder, self.model, self.ema)
