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
    set_ratios(model, ratios(config, model))
    return text_command.optimizer(config, model, pace, schedule_steps(config, pace, steps))


def ratios(config: DocumentTrainConfig, model: nn.Layer) -> Mapping[str, float]:
    """Ratio of each parameter's rate to the run's, {} where all have one rate."""
    decay, count = config.layer_learning_rate_decay, model.encoder_config.num_hidden_layers
    if config.paddle_compat:
        return weight_ratios(model, decay)
    if not config.discr:
        return {}
    rates = config.layer_learning_rate or (config.learning_rate,)
    if len(rates) == 1:
        rates = decayed_rates(count, rates[0], decay)
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


def decayed_rates(count: int, rate: float, decay: float) -> list[float]:
    """Rate of each layer: ``rate * decay ** (n - 1 - i)``, so that the last one has ``rate``.

    Source: D.4, the original.
    """
    return [rate * decay ** (count - 1 - layer) for layer in range(count)]


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


def weight_ratios(model: nn.Layer, decay: float) -> dict[str, float]:
    """What the Paddle port does instead: ``decay ** 0.5`` for all with "weight" in the name.

    QUIRK: it is not by layer; biases keep the run's rate (D.4).
    """
    names = [name for name, _ in model.named_parameters()]
    return {name: decay**0.5 if "weight" in name else 1.0 for name in names}


def set_ratios(model: nn.Layer, ratios: Mapping[str, float]) -> None:
    """Hand the ratios to whatever optimizer is built on the model."""
    for name, parameter in model.named_parameters():
        parameter.optimize_attr["learning_rate"] = ratios.get(name, 1.0)
