"""The command that trains on hidden states (``tools/train_adapter.py``)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle import distributed
from sot_paddle.heads.adapter_pooler import (
    AdapterClassifier,
    AdapterConfig,
    AdapterSpans,
    LayerClassifiers,
    LayerSpans,
)
from sot_paddle.tasks.state_options import LIVE, RecipeOptions, StateTrainConfig
from sot_paddle.tasks.task import Task
from sot_paddle.train import pretrained, session
from sot_paddle.train.device import prepare_device
from sot_paddle.train.feeding import Pace
from sot_paddle.train.optimizer import decayed_names
from sot_paddle.train.run_folder import open_folders
from sot_paddle.train.saved_model import config_file
from sot_paddle.train.state_tasks import load_states
from sot_paddle.train.text_command import optimizer, text_setup

_MODELS: Mapping[tuple[str, bool], Callable[[AdapterConfig, int], nn.Layer]] = {
    ("adapter", False): AdapterClassifier,
    ("adapter", True): lambda sizes, _: AdapterSpans(sizes),
    ("probes", False): LayerClassifiers,
    ("probes", True): lambda sizes, _: LayerSpans(sizes),
}
"""(``--model``, question answering) -> the model."""


def run_config(config: StateTrainConfig) -> dict[str, Any]:
    """Run every seed of a configuration; see :func:`.session.run_setup`."""
    prepare_device(dtype=config.dtype, cpu=config.no_cuda, cpu_precision=config.cpu_precision)
    sources = {"--states": None if config.states == LIVE else Path(config.states)}
    if config.model_name_or_path:
        sources |= pretrained.sources(config)
    with open_folders(config, sources) as folders:
        task, of_row = load_states(config)
        decay = every_name if config.squad else decayed_names
        make_optimizer = functools.partial(optimizer_of_full_batches, decay=decay)
        setup = text_setup(config, task, StateModel(config, of_row), make_optimizer)
        return session.run_setup(setup, folders)


def every_name(model: nn.Layer) -> set[str]:
    """Names of all parameters: the original's adapter for SQuAD has no exclusion (C.4)."""
    return {name for name, _ in model.named_parameters()}


@dataclass(frozen=True)
class StateModel:
    """A model on hidden states; see :class:`sot_paddle.train.setup.ModelSource`.

    Attributes:
        of_row: (L, T, F) of the hidden states.
    """

    config: StateTrainConfig
    of_row: tuple[int, int, int]
    origin = "the start"

    def build(self, task: Task) -> nn.Layer:
        """The model that the options and the sizes of the hidden states describe."""
        layers, tokens, features = self.of_row
        sizes = AdapterConfig(layers, features, tokens, self.config.adapter_dim)
        return _MODELS[self.config.model, self.config.squad](sizes, task.num_outputs)

    def load(self, model: nn.Layer) -> Sequence[str]:
        """Nothing to load: every tensor is fresh."""
        return list(model.state_dict())

    def about(self, model: nn.Layer) -> str:
        """The sizes of the hidden states."""
        layers, tokens, features = self.of_row
        width = f", width {model.config.width}" if self.config.model == "adapter" else ""
        return f"on {layers} hidden states of {tokens} tokens x {features}{width}"

    def files(self, model: nn.Layer, task: Task) -> Mapping[str, bytes]:
        """What rebuilds the model, and the names of its classes."""
        content = {
            "sot_model": model.name,
            "task": task.title,
            "id2label": {str(index): label for index, label in enumerate(task.classes)},
            **dataclasses.asdict(model.config),
        }
        return config_file(content)


def schedule_steps(config: RecipeOptions, pace: Pace, steps: int) -> int:
    """Optimizer steps after which the rate is zero.

    QUIRK: the original counts full batches only, so that the last batch of a run, when it is not
    full, is trained with a rate of zero.

    """
    if config.max_steps > 0:
        return steps
    size = config.per_gpu_train_batch_size * distributed.world_size()
    full = pace.rows // (size * pace.accumulation)
    total = int(full * config.num_train_epochs)
    if total < 1:
        raise ValueError(
            f"{pace.rows} rows make no full batch of {size} x {pace.accumulation}: "
            "lower --per_gpu_train_batch_size"
        )
    return total


def optimizer_of_full_batches(
    config: RecipeOptions,
    model: nn.Layer,
    pace: Pace,
    steps: int,
    decay: Callable[[nn.Layer], set[str]] = decayed_names,
) -> tuple[Optimizer, LRScheduler]:
    """The published recipe (C.4): :func:`optimizer` with the steps of :func:`schedule_steps`."""
    return optimizer(config, model, pace, schedule_steps(config, pace, steps), decay)
