"""A recipe as the optimizer factories of a pair: optimizer, schedule, clipping, moving average."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import paddle
import torch

from align.frameworks.on_torch import numpy
from align.port.row import Recipe
from align.record.arrays import Arrays
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.optimizer import (
    CLIPPINGS,
    OPTIMIZERS,
    decay_filter,
    decayed_names,
    decayed_names_by_shape,
)
from sot_paddle.train.schedule import EpochRates, PerEpoch, build_schedule
from sot_torch_ref.train.ema import ModelEma as TorchModelEma
from sot_torch_ref.train.optimizer import BertAdam, HFAdamW, decay_groups, vision_decay_groups
from sot_torch_ref.train.schedule import vision_learning_rates, warmup_linear

_PADDLE_DECAY = {"text": decayed_names, "vision": decayed_names_by_shape}
_TORCH_DECAY = {"text": decay_groups, "vision": vision_decay_groups}
_TORCH_OPTIMIZERS = {"hf_adamw": HFAdamW, "adamw": torch.optim.AdamW}
_BETAS = (0.9, 0.999)
_BERT_ADAM = "bert_adam"


def torch_factory(recipe: Recipe) -> Callable[[torch.nn.Module], tuple]:
    """Return what makes the reference's optimizer, schedule, clipping and average of a model."""

    def clip(model: torch.nn.Module) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)

    def make(model: torch.nn.Module) -> tuple:
        optimizer = _torch_optimizer(model, recipe)
        clips_all = recipe.clip_norm is not None and recipe.optimizer != _BERT_ADAM
        average = None if recipe.ema_decay is None else _Average(model, recipe.ema_decay)
        return optimizer, _torch_schedule(optimizer, recipe), clip if clips_all else None, average

    return make


def paddle_factory(recipe: Recipe) -> Callable[[paddle.nn.Layer], tuple]:
    """Return what makes the product's optimizer, schedule and average of a model."""

    def make(model: paddle.nn.Layer) -> tuple:
        schedule = _paddle_schedule(recipe)
        average = None if recipe.ema_decay is None else ModelEma(model, recipe.ema_decay)
        return _paddle_optimizer(model, recipe, schedule), schedule, None, average

    return make


def _torch_optimizer(model: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    groups = _TORCH_DECAY[recipe.decay](model, recipe.weight_decay)
    options: dict[str, Any] = {"lr": recipe.learning_rate, "betas": _BETAS, "eps": recipe.epsilon}
    if recipe.optimizer == _BERT_ADAM:
        return BertAdam(groups, max_grad_norm=recipe.clip_norm, **options)
    if not recipe.correct_bias:
        options["correct_bias"] = False
    return _TORCH_OPTIMIZERS[recipe.optimizer](groups, **options)


def _paddle_optimizer(
    model: paddle.nn.Layer, recipe: Recipe, schedule: Any
) -> paddle.optimizer.Optimizer:
    clipping = CLIPPINGS["tensor" if recipe.optimizer == _BERT_ADAM else "global"]
    options: dict[str, Any] = {} if recipe.correct_bias else {"correct_bias": False}
    return OPTIMIZERS[recipe.optimizer](
        learning_rate=schedule,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=recipe.weight_decay,
        apply_decay_param_fun=decay_filter(model, _PADDLE_DECAY[recipe.decay]),
        grad_clip=None if recipe.clip_norm is None else clipping(recipe.clip_norm),
        beta1=_BETAS[0],
        beta2=_BETAS[1],
        epsilon=recipe.epsilon,
        **options,
    )


def _torch_schedule(optimizer: torch.optim.Optimizer, recipe: Recipe) -> Any:
    """Return transformers' own schedule, the original's of ``bert_adam``, or timm's by epoch."""
    if recipe.by_epoch is not None:
        return _ByEpoch(optimizer, recipe)
    from transformers import optimization

    schedules = {
        "linear": optimization.get_linear_schedule_with_warmup,
        "cosine": optimization.get_cosine_schedule_with_warmup,
        "linear_drop": warmup_linear,
    }
    return schedules[recipe.schedule](optimizer, recipe.warmup_steps, recipe.total_steps)


def _paddle_schedule(recipe: Recipe) -> Any:
    if recipe.by_epoch is not None:
        fields = dataclasses.asdict(recipe.by_epoch)
        steps = fields.pop("steps")
        return PerEpoch(EpochRates(recipe.learning_rate, **fields), steps)
    return build_schedule(
        recipe.schedule,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        total_steps=recipe.total_steps,
    )


class _Average(TorchModelEma):
    """The reference's moving average bound to its model."""

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        super().__init__(model, decay, False)
        self._model = model

    def update(self, model: torch.nn.Module | None = None) -> None:
        """Take in the model's present state."""
        super().update(self._model if model is None else model)

    def arrays(self) -> Arrays:
        """Return the averages by name."""
        return {name: numpy(tensor) for name, tensor in self.state.items()}


class _ByEpoch:
    """timm's rate of each epoch, set before the epoch's first step."""

    def __init__(self, optimizer: torch.optim.Optimizer, recipe: Recipe) -> None:
        fields = dataclasses.asdict(recipe.by_epoch)
        self._steps_of_epoch, self._steps_done = fields.pop("steps"), 0
        self._rates = vision_learning_rates(recipe.learning_rate, **fields)
        self._optimizer = optimizer
        self._set_rate()

    def step(self) -> None:
        """Count an optimizer step."""
        self._steps_done += 1
        self._set_rate()

    def _set_rate(self) -> None:
        epoch = min(self._steps_done // self._steps_of_epoch, len(self._rates) - 1)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rates[epoch]
