"""The command that classifies whole texts (``tools/train_text.py``), with rates by layer.

A rate is handed to the optimizer as its ratio to the run's learning rate, so that every parameter
follows the one schedule.

Shape legend: n layers, numbered from 0 in the order of computation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle import distributed
from sot_paddle.distributed import say
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.documents import load_documents
from sot_paddle.train import text_command
from sot_paddle.train.feeding import Pace


def run_config(config: DocumentTrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    if config.paddle_compat and config.discr:
        say("--discr has no effect: the Paddle port ignores it, see --paddle_compat")
    return text_command.run_text(config, load_documents, optimizer)


def optimizer(
    config: DocumentTrainConfig, model: nn.Layer, pace: Pace, steps: int
) -> tuple[Optimizer, LRScheduler]:
    """The published recipe (D.4), or the one that the options ask for; see `Setup`."""
    by_name = ratios(config, model)
    for name, parameter in model.named_parameters():  # for whatever optimizer is built on them
        parameter.optimize_attr["learning_rate"] = by_name.get(name, 1.0)
    return text_command.optimizer(config, model, pace, schedule_steps(config, pace, steps))


def ratios(config: DocumentTrainConfig, model: nn.Layer) -> Mapping[str, float]:
    """Ratio of each parameter's rate to the run's, {} where all have one rate.

    Of one rate layer i has ``rate * decay ** (n - 1 - i)``, so that the last one has ``rate`` (D.4,
    the original). QUIRK: the Paddle port takes ``decay ** 0.5`` for all with "weight" in the name
    instead, whatever the layer; biases keep the run's rate.
    """
    decay, count = config.layer_learning_rate_decay, model.encoder_config.num_hidden_layers
    if config.paddle_compat:
        names = [name for name, _ in model.named_parameters()]
        return {name: decay**0.5 if "weight" in name else 1.0 for name in names}
    if not config.discr:
        return {}
    rates = config.layer_learning_rate or (config.learning_rate,)
    if len(rates) == 1:
        rates = [rates[0] * decay ** (count - 1 - layer) for layer in range(count)]
    return layer_ratios(model, rates, config.learning_rate)


def schedule_steps(config: DocumentTrainConfig, pace: Pace, steps: int) -> int:
    """Optimizer steps after which the rate is zero: ``int(rows / batch * epochs)``.

    QUIRK: the original counts a last batch that is not full as the part of a step that it is, so
    that the rate may be zero before the last steps; there it went on below zero.

    Args:
        steps: optimizer steps of the run, which the Paddle port goes by.
    """
    if config.max_steps > 0 or config.paddle_compat:
        return steps
    batch = config.per_gpu_train_batch_size * distributed.world_size()
    shown = pace.rows / (batch * pace.accumulation) * config.num_train_epochs
    return max(1, int(shown))


def layer_ratios(model: nn.Layer, rates: Sequence[float], base: float) -> dict[str, float]:
    """Ratio to the run's rate of every parameter of a language model with a head.

    Args:
        base: the run's rate, above 0; all outside of the layers have it: embeddings and head.

    Raises:
        ValueError: another number of rates than layers.
    """
    count = model.encoder_config.num_hidden_layers
    if len(rates) != count:
        raise ValueError(f"layer_learning_rate must be 1 or {count} numbers, got {len(rates)}")
    pattern = re.compile(model.backbone.layers)
    matches = {name: pattern.match(name) for name, _ in model.named_parameters()}
    return {name: rates[int(at[1])] / base if at else 1.0 for name, at in matches.items()}
