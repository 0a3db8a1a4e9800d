"""The record of one run, shared by what trains it and what concludes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.data.predictions import prediction_path
from sot_paddle.train import pretrained
from sot_paddle.train.arguments import TrainConfig
from sot_paddle.train.callbacks import StopRequest
from sot_paddle.train.evaluation import main_metric
from sot_paddle.train.pretrained import Pretrained
from sot_paddle.train.run_folder import FolderUse
from sot_paddle.train.task_data import TaskData


@dataclass
class Run:
    """Everything of one run with one seed.

    Attributes:
        config: its options.
        seed: its seed.
        root: its output folder.
        data: the splits.
        source: the encoder it starts from.
        stop: Ctrl-C's request.
        model: the model, once built.
        fresh: tensors of the model that the encoder's checkpoint did not hold.
        result: what metrics.json will hold.
        autocast: context of a forward pass outside of training.
    """

    config: TrainConfig
    seed: int
    root: Path
    data: TaskData
    source: Pretrained
    stop: StopRequest
    model: nn.Layer | None = None
    fresh: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext

    @property
    def use(self) -> FolderUse:
        """The files it reads, and those that it leaves in its folder beside checkpoints."""
        task = self.data.task
        names = [prediction_path(self.root, task, split).name for split in self.data.test]
        return FolderUse(tuple(names), pretrained.sources(self.config))

    @property
    def metric(self) -> str:
        """Name of the metric that selects the best model."""
        return main_metric(self.data.metric_task)
