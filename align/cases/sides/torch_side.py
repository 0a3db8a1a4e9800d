"""The PyTorch side of a case: build the reference, load arrays, run, hand over NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import sot_torch_ref
from align.cases.kinds.case_kinds import WORDS_DIM, ModelCase, Recipe, TimmCase
from align.frameworks.factories import AVERAGE, unpack
from align.frameworks.on_torch import default_dtype, numpy, stamp
from align.record.arrays import Arrays, TrainingRun
from sot_torch_ref.features import Features
from sot_torch_ref.heads import HeadConfig, adapter_pooler, build_head
from sot_torch_ref.train.ema import ModelEma
from sot_torch_ref.train.losses import (
    layers_loss,
    soft_target_cross_entropy,
    span_loss,
    task_loss,
)
from sot_torch_ref.train.optimizer import (
    BertAdam,
    HFAdamW,
    decay_groups,
    is_decayed,
    is_decayed_vision,
    vision_decay_groups,
)
from sot_torch_ref.train.schedule import vision_learning_rates, warmup_linear


class TorchWordsOnly(torch.nn.Module):
    """A head without a class token, on tokens given as they are."""

    def __init__(self, options: Mapping[str, Any], dim: int, num_classes: int) -> None:
        super().__init__()
        config = HeadConfig(**options)
        self.head = build_head(
            config, hidden_size=dim, num_classes=num_classes, has_class_token=False
        )

    def forward(self, tokens: torch.Tensor):
        """Tokens (B, N, C) to (logits, taps)."""
        logits, taps = self.head(Features(cls=None, words=tokens, mask=None))
        named = {f"head.{name}": tap for name, tap in taps.items() if name != "logits"}
        return logits, {**named, "logits": taps["logits"]}


_ON_STATES: Mapping[str, Callable[..., torch.nn.Module]] = {
    "adapter_classifier": adapter_pooler.AdapterClassifier,
    "adapter_spans": lambda num_classes, **options: adapter_pooler.AdapterSpans(**options),
    "layer_classifiers": lambda num_layers, hidden_size, num_classes, **_: (
        adapter_pooler.LayerClassifiers(num_layers, hidden_size, num_classes=num_classes)
    ),
    "layer_spans": lambda num_layers, hidden_size, **_: adapter_pooler.LayerSpans(
        num_layers, hidden_size
    ),
}
"""Models on hidden states, by the names that their cases have."""


class TorchOnStates(torch.nn.Module):
    """A model on hidden states."""

    def __init__(self, name: str, options: Mapping[str, Any], num_classes: int) -> None:
        super().__init__()
        self.head = _ON_STATES[name](num_classes=num_classes, **options)

    def forward(self, states: torch.Tensor):
        """Hidden states (B, L, T, F) to (output, taps)."""
        output, taps = self.head(states)
        prefixes = {"logits": ""}
        return output, {f"{prefixes.get(n, 'head.')}{n}": tap for n, tap in taps.items()}


def build(case: ModelCase, dtype: str) -> torch.nn.Module:
    """Build the reference model of a case."""
    with default_dtype(dtype):
        if case.subject == "words":
            model: torch.nn.Module = TorchWordsOnly(case.options, WORDS_DIM, case.num_classes)
        elif case.subject == "states":
            model = TorchOnStates(case.model, case.options, case.num_classes)
        elif isinstance(case, TimmCase):
            from align.cases.sides.timm_side import TimmReference

            model = TimmReference(case)
        else:
            model = sot_torch_ref.create_model(case.model, case.num_classes, **case.options)
    return model.train(case.train)


def build_seeded(case: ModelCase) -> torch.nn.Module:
    """The float64 reference with the random weights of the case's seed."""
    torch.manual_seed(case.batch.seed)
    return build(case, "float64")


def load_state(model: torch.nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Load arrays by name, strictly, in the model's precision; gradients are dropped."""
    own = model.state_dict()
    tensors = {n: torch.from_numpy(value.copy()).to(own[n].dtype) for n, value in state.items()}
    model.load_state_dict(tensors, strict=True, assign=True)
    model.zero_grad(set_to_none=True)


def _logits(model: torch.nn.Module, batch: Mapping[str, np.ndarray]):
    return model(**{name: torch.from_numpy(v) for name, v in batch.items() if name != "labels"})


LOSSES: Mapping[str, Callable] = {
    "spans": span_loss,
    "adapter_spans": span_loss,
    "layer_classifiers": layers_loss,
    "layer_spans": span_loss,
}
"""Losses of the heads and models that have one of their own."""


def loss(logits, labels: torch.Tensor) -> torch.Tensor:
    """The reference's loss: soft targets (B, K) are those of images."""
    chosen = soft_target_cross_entropy if labels.ndim == 2 else task_loss
    return chosen(logits, labels)


def _loss(logits, labels: np.ndarray) -> torch.Tensor:
    return loss(logits, torch.from_numpy(labels))


def _optimizer(model: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    group = {"text": decay_groups, "vision": vision_decay_groups}[recipe.decay]
    groups = group(model, recipe.weight_decay)
    given = {"betas": recipe.betas, "eps": recipe.epsilon}
    stated = {name: value for name, value in given.items() if value is not None}
    if recipe.clips_each:
        return BertAdam(groups, lr=recipe.learning_rate, max_grad_norm=recipe.clip_norm, **stated)
    kind = {"hf_adamw": HFAdamW, "adamw": torch.optim.AdamW}[recipe.optimizer]
    own = {} if recipe.correct_bias else {"correct_bias": False}
    return kind(groups, lr=recipe.learning_rate, **stated, **own)


def schedule_of(optimizer: torch.optim.Optimizer, recipe: Recipe):
    """transformers' own schedule on a torch optimizer, or timm's by epoch."""
    if recipe.by_epoch is not None:
        return _ByEpoch(optimizer, recipe)
    from transformers import optimization

    warmup, total = recipe.warmup_steps, recipe.total_steps
    if recipe.schedule == "linear_drop":
        return warmup_linear(optimizer, warmup, total)
    if recipe.schedule == "constant":
        return optimization.get_constant_schedule_with_warmup(optimizer, warmup)
    factory = {
        "linear": optimization.get_linear_schedule_with_warmup,
        "cosine": optimization.get_cosine_schedule_with_warmup,
    }[recipe.schedule]
    return factory(optimizer, warmup, total)


def factory(recipe: Recipe) -> Callable[[torch.nn.Module], tuple]:
    """A recipe as the optimizer factory of a pair: schedule, clipping and moving average too."""

    def clip(model: torch.nn.Module) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)

    def make(model: torch.nn.Module) -> tuple:
        optimizer = _optimizer(model, recipe)
        average = None
        if recipe.ema_decay is not None:
            average = _Average(model, recipe.ema_decay, recipe.ema_warmup)
        clips = recipe.clip_norm is not None and not recipe.clips_each
        return optimizer, schedule_of(optimizer, recipe), clip if clips else None, average

    return make


class _Average(ModelEma):
    """The reference's moving average bound to its model."""

    def __init__(self, model: torch.nn.Module, decay: float, warmup: bool) -> None:
        super().__init__(model, decay, warmup)
        self._model = model

    def update(self, model: torch.nn.Module | None = None) -> None:
        """Take in the model's present state."""
        super().update(self._model if model is None else model)

    def arrays(self) -> Arrays:
        """The averages by name."""
        return {name: numpy(tensor) for name, tensor in self.state.items()}


class _ByEpoch:
    """timm's rate of each epoch, set before the epoch's first step."""

    def __init__(self, optimizer: torch.optim.Optimizer, recipe: Recipe) -> None:
        fields = dataclasses.asdict(recipe.by_epoch)
        self._steps, self._done = fields.pop("steps"), 0
        if fields.pop("kind") == "constant":  # a cosine between equal ends
            fields["min_lr"] = recipe.learning_rate
        self._rates = vision_learning_rates(recipe.learning_rate, **fields)
        self._optimizer = optimizer
        self._set()

    def step(self) -> None:
        """Count an optimizer step."""
        self._done += 1
        self._set()

    def _set(self) -> None:
        epoch = min(self._done // self._steps, len(self._rates) - 1)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rates[epoch]


def train(
    model: torch.nn.Module,
    batches: Sequence[Mapping[str, np.ndarray]],
    recipe: Recipe,
    dtype: str,
    pauses: Collection[int] = (),
    ends: Collection[int] | None = None,
) -> Generator[TrainingRun, None, None]:
    """Train on given batches, ``recipe.accumulate`` for each optimizer step.

    ``ends`` names the batches, from 1, after which the optimizer steps, where that is not every
    ``recipe.accumulate``-th one; what is left at the end of an epoch is then carried over.

    Yields:
        The run after each optimizer step of ``pauses`` and at its end.
    """
    losses: list[float] = []
    rates: list[float] = []
    with default_dtype(dtype):
        optimizer, schedule = unpack(factory(recipe)(model), model)
    average = getattr(optimizer, AVERAGE, None)
    ends = range(recipe.accumulate, len(batches) + 1, recipe.accumulate) if ends is None else ends
    for index, batch in enumerate(batches, 1):
        with default_dtype(dtype):
            loss = _loss(_logits(model, batch), batch["labels"])
            (loss / recipe.accumulate).backward()
            losses.append(loss.item())
            if index in ends:
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                schedule.step()
                optimizer.zero_grad(set_to_none=True)
        if index == len(batches) or (index in ends and len(rates) in pauses):
            run = TrainingRun(list(losses), list(rates), _state(model.state_dict()))
            if average is not None:
                run.average = _state(average.state)
            run.decayed = decayed(model, recipe)
            run.stamp = stamp(next(model.parameters()).detach())
            yield run


def weighted_gradients(
    model: torch.nn.Module,
    batches: Sequence[Mapping[str, np.ndarray]],
    weights: Sequence[np.ndarray],
    dtype: str,
) -> Arrays:
    """Gradients of the sum over batches and rows of weight times the row's own loss.

    Args:
        model: its gradients are dropped before and after.
        batches: each goes through the model as a whole.
        weights: of each batch (B,), one for each row.
        dtype: precision of the model.
    """
    model.zero_grad(set_to_none=True)
    with default_dtype(dtype):
        for batch, own in zip(batches, weights, strict=True):
            logits = _logits(model, batch)
            rows = [slice(row, row + 1) for row in range(len(own))]
            losses = [_loss(logits[row], batch["labels"][row]) for row in rows]
            (torch.stack(losses) * torch.from_numpy(own)).sum().backward()
    found = {n: numpy(p.grad) for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def _state(tensors: Mapping[str, torch.Tensor]) -> Arrays:
    """Arrays of a state dict without batch counters, which Paddle does not have."""
    return {n: numpy(t) for n, t in tensors.items() if "num_batches" not in n}


def decayed(model: torch.nn.Module, recipe: Recipe) -> set[str]:
    """Names of the parameters that weight decay applies to."""
    rule = is_decayed_vision if recipe.decay == "vision" else lambda name, _: is_decayed(name)
    return {n for n, p in model.named_parameters() if p.requires_grad and rule(n, p)}
