"""The command that classifies whole texts (``tools/train_text.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle import distributed
from sot_paddle.distributed import say
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.documents import load_documents
from sot_paddle.train import layer_rates, text_command
from sot_paddle.train.feeding import Pace


def run_config(config: DocumentTrainConfig) -> dict[str, Any]:
    """Run every seed of a configuration; see :func:`.session.run_setup`."""
    if config.paddle_compat and config.discr:
        say("--discr has no effect: the Paddle port ignores it, see --paddle_compat")
    return text_command.run_text(config, load_documents, optimizer)


def optimizer(
    config: DocumentTrainConfig, model: nn.Layer, pace: Pace, steps: int
) -> tuple[Optimizer, LRScheduler]:
    """The published recipe (D.4), or the one that the options ask for; see `Setup`."""
    layer_rates.set_ratios(model, ratios(config, model))
    return text_command.optimizer(config, model, pace, schedule_steps(config, pace, steps))


def ratios(config: DocumentTrainConfig, model: nn.Layer) -> Mapping[str, float]:
    """Ratio of each parameter's rate to the run's, {} where all have one rate."""
    decay, count = config.layer_learning_rate_decay, model.encoder_config.num_hidden_layers
    if config.paddle_compat:
        return layer_rates.weight_ratios(model, decay)
    if not config.discr:
        return {}
    rates = config.layer_learning_rate or (config.learning_rate,)
    if config.discr_blocks:
        rates = layer_rates.block_rates(count, config.learning_rate)
    elif len(rates) == 1:
        rates = layer_rates.decayed_rates(count, rates[0], decay)
    return layer_rates.layer_ratios(model, rates, config.learning_rate)


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
