"""The record of one run, shared by what trains it and what concludes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle import nn

from sot_paddle.tasks.glue import GlueTask
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import pretrained
from sot_paddle.train.callbacks import StopRequest
from sot_paddle.train.pretrained import Pretrained
from sot_paddle.train.run_folder import FolderUse


@dataclass
class Run:
    """Everything of one run with one seed.

    Attributes:
        config: its options.
        seed: its seed.
        root: its output folder.
        task: what it trains on.
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
    task: GlueTask
    source: Pretrained
    stop: StopRequest
    model: nn.Layer | None = None
    fresh: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext

    @property
    def use(self) -> FolderUse:
        """The files it reads, and those that it leaves in its folder beside checkpoints."""
        names = [self.task.prediction_file(split) for split in self.task.test]
        return FolderUse(tuple(names), pretrained.sources(self.config))

    @property
    def metric(self) -> str:
        """Name of the metric that selects the best model."""
        return self.task.metric
