"""What a command trains and how, and one run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle import distributed
from sot_paddle.tasks.task import Task
from sot_paddle.train import run_folder
from sot_paddle.train.checkpointing import TensorFile
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.feeding import Pace
from sot_paddle.weights import load_weights, weights_and_metadata


class ModelSource(Protocol):
    """Where a run's model comes from, and what a folder says about it beside its weights."""

    origin: str

    def build(self, task: Task) -> nn.Layer:
        """The model with fresh weights, drawn from the present random state."""

    def load(self, model: nn.Layer) -> Sequence[str]:
        """Load the initial weights; returns the names of the tensors that stay fresh."""

    def about(self, model: nn.Layer) -> str:
        """The model's options that a user wants to see, on one line."""

    def files(self, model: nn.Layer, task: Task) -> Mapping[str, bytes]:
        """Everything but the weights that rebuilds the model, as files of its folder."""


@dataclass(frozen=True)
class Setup:
    """What a command trains, and how: everything in which kinds of task differ."""

    options: Any  # the command's record
    task: Task
    source: ModelSource
    # of options, model with its parameters, pace, optimizer steps of the run
    optimizer: Callable[[Any, nn.Layer, Pace, int], tuple[Optimizer, LRScheduler]]
    # of paddlenlp's TrainingArguments: batch size, epochs, steps, precision
    arguments: Mapping[str, Any]
    save_epochs: int = 0  # epochs between checkpoints, 0 for none but those of ``save_steps``
    eval_steps: int | None = None  # steps between evaluations, None for each epoch, 0 for never
    ema_decay: float | None = None  # of the moving average, None for none
    # the average follows closely at first; None for where the run is so short that much of the
    # start would stay in it
    ema_warmup: bool | None = False
    sync_bn: bool = True  # batch statistics over all processes
    own_masks: bool = False  # each process draws dropout masks of its own


@dataclass(frozen=True)
class Run:
    """One run: its setup, its folder and its model."""

    setup: Setup
    root: Path
    model: nn.Layer
    ema: ModelEma | None = None
    autocast: Callable[[], AbstractContextManager] = nullcontext
    """Makes the context of mixed precision in which the model computes."""

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
            "processes": distributed.world_size(),
            "train_data": self.task.train.fingerprint,
        }

    @property
    def evaluation_data(self) -> str:
        """Fingerprint of what is evaluated on; another one forgets old results."""
        return ",".join(split.fingerprint for split in self.task.dev.values())

    def files(self) -> Iterator[tuple[str, bytes | TensorFile]]:
        """The model as files of a folder, drawn one by one."""
        arrays, metadata = weights_and_metadata(self.model)
        yield run_folder.WEIGHTS, TensorFile(arrays, metadata)
        if self.ema is not None:
            yield run_folder.EMA, TensorFile(self.ema.arrays(), metadata)
        yield from self.setup.source.files(self.model, self.task).items()

    def restore(self, folder: Path) -> None:
        """Take the model from a folder."""
        if self.ema is not None:
            load_weights(self.model, folder / run_folder.EMA)
            self.ema.restart()
        load_weights(self.model, folder)
