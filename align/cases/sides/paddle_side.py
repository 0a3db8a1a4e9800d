"""The Paddle side of a case: build the product's model, load arrays, run, hand over NumPy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import paddle

import sot_paddle
from align.cases.kinds.case_kinds import WORDS_DIM, ModelCase, Recipe
from align.frameworks.on_paddle import default_dtype, numpy
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import build_head
from sot_paddle.heads.adapter_pooler import AdapterClassifier, AdapterConfig, AdapterSpans
from sot_paddle.heads.layer_probes import LayerClassifiers, LayerSpans
from sot_paddle.tasks.losses import classification_loss, image_loss, probe_loss, span_loss
from sot_paddle.train import exact_state
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.optimizer import (
    CLIPPINGS,
    OPTIMIZERS,
    decay_filter,
    decayed_names,
    decayed_names_by_shape,
)
from sot_paddle.train.schedule import EpochRates, PerEpoch, build_schedule

_DECAY_RULES = {"text": decayed_names, "vision": decayed_names_by_shape}


@contextlib.contextmanager
def buffers_kept(model: paddle.nn.Layer) -> Iterator[None]:
    """Put the running statistics back afterwards, so that every pass starts from the same ones."""
    before = [(buffer, numpy(buffer)) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.set_value(value)


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Put back the precision, the device and the generators that a run of a trainer sets."""
    states, device = exact_state.random_states(), paddle.get_device()
    try:
        with default_dtype(paddle.get_default_dtype()):
            yield
    finally:
        paddle.set_device(device)
        exact_state.restore_random_states(states)


class PaddleWordsOnly(paddle.nn.Layer):
    """A head without a class token, on tokens given as they are."""

    def __init__(self, options: Mapping[str, Any], dim: int, num_classes: int) -> None:
        super().__init__()
        config = HeadConfig(**options)
        self.head = build_head(config, dim=dim, num_classes=num_classes, has_class_token=False)

    def forward(self, tokens: paddle.Tensor) -> tuple[paddle.Tensor, Taps]:
        """Tokens (B, N, C) to (logits, taps)."""
        taps: Taps = {}
        logits = self.head(Features(None, tokens, None), taps)
        return record(taps, "logits", logits), taps


_ON_STATES: Mapping[str, Callable[[AdapterConfig, int], paddle.nn.Layer]] = {
    "adapter_classifier": AdapterClassifier,
    "adapter_spans": lambda config, _: AdapterSpans(config),
    "layer_classifiers": LayerClassifiers,
    "layer_spans": lambda config, _: LayerSpans(config),
}
"""Models on hidden states, by the names that their cases have."""


class PaddleOnStates(paddle.nn.Layer):
    """A model on hidden states."""

    def __init__(self, name: str, options: Mapping[str, Any], num_classes: int) -> None:
        super().__init__()
        self.head = _ON_STATES[name](AdapterConfig(**options), num_classes)

    def forward(self, states: paddle.Tensor) -> tuple[Any, Taps]:
        """Hidden states (B, L, T, F) to (output, taps)."""
        taps: Taps = {}
        return self.head(states, taps), taps


def build(case: ModelCase, dtype: str) -> paddle.nn.Layer:
    """Build the product's model of a case."""
    with default_dtype(dtype):
        if case.subject == "words":
            model: paddle.nn.Layer = PaddleWordsOnly(case.options, WORDS_DIM, case.num_classes)
        elif case.subject == "states":
            model = PaddleOnStates(case.model, case.options, case.num_classes)
        else:
            model = sot_paddle.create_model(case.model, case.num_classes, **case.options)
    model.train() if case.train else model.eval()
    return model


LOSSES: Mapping[str, Callable] = {
    "spans": span_loss,
    "adapter_spans": span_loss,
    "layer_classifiers": probe_loss,
    "layer_spans": probe_loss,
}
"""Losses of the heads and models that have one of their own."""


def loss(logits, labels: paddle.Tensor) -> paddle.Tensor:
    """The product's loss: soft targets (B, K) are those of images."""
    chosen = image_loss if labels.ndim == 2 else classification_loss
    return chosen(logits, labels)


def _optimizer(model: paddle.nn.Layer, recipe: Recipe, learning_rate):
    clips = CLIPPINGS["tensor" if recipe.clips_each else "global"]
    clip = None if recipe.clip_norm is None else clips(recipe.clip_norm)
    return OPTIMIZERS[recipe.optimizer](
        learning_rate=learning_rate,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=recipe.weight_decay,
        apply_decay_param_fun=decay_filter(model, _DECAY_RULES[recipe.decay]),
        grad_clip=clip,
        **_stated(recipe),
    )


def factory(recipe: Recipe) -> Callable[[paddle.nn.Layer], tuple]:
    """A recipe as the optimizer factory of a pair: schedule and moving average too."""

    def make(model: paddle.nn.Layer) -> tuple:
        schedule = schedule_of(recipe)
        average = None if recipe.ema_decay is None else ModelEma(model, recipe.ema_decay)
        return _optimizer(model, recipe, schedule), schedule, None, average

    return make


def _stated(recipe: Recipe) -> dict[str, Any]:
    """The options that a recipe does not leave to the optimizer's defaults."""
    stated: dict[str, Any] = {} if recipe.correct_bias else {"correct_bias": False}
    if recipe.betas is not None:
        stated |= {"beta1": recipe.betas[0], "beta2": recipe.betas[1]}
    return stated if recipe.epsilon is None else stated | {"epsilon": recipe.epsilon}


def schedule_of(recipe: Recipe):
    """The product's schedule."""
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


def decayed(model: paddle.nn.Layer, recipe: Recipe) -> set[str]:
    """Names of the parameters that weight decay applies to."""
    return _DECAY_RULES[recipe.decay](model)
