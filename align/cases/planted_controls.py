"""Negative controls: faults that each step plants in the Paddle side and must catch, every run.

A fault changes the built
Paddle model and is undone afterwards. A control is caught when the step's own comparison then
fails.

Faults of a recipe are other recipes: the steps ``optimizer`` and ``training`` plant them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from align.cases.kinds.case_kinds import Recipe
from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.swin_blocks import SwinBlock
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS
from sot_paddle.heads.adapter_pooler import AdapterPooler
from sot_paddle.heads.fusion import PoolerHead
from sot_paddle.heads.layer_probes import LayerProbes
from sot_paddle.heads.layer_tokens import LayerTokensHead
from sot_paddle.heads.pooling import (
    BranchCovariance,
    MultiHeadCrossCovariance,
    TokenBatchNorm,
)
from sot_paddle.heads.power_norm import MatrixSqrt, RowLayerNorm, SvPN

Undo = Callable[[], None]
Find = Callable[[nn.Layer], tuple[str, Any] | None]
"""A model -> what is changed, with its name; None where the model has no such layer."""
_DEFAULT_ACTIVATION = ACTIVATION_FUNCTIONS["gelu"]


def put(*owners: Any, **values: Any) -> Undo:
    """Other values of attributes that exist already."""
    before = [(owner, name, getattr(owner, name)) for owner in owners for name in values]
    for owner, name, _ in before:
        setattr(owner, name, values[name])

    def undo() -> None:
        for owner, name, value in before:
            setattr(owner, name, value)

    return undo


def replaced(layer: nn.Layer, **methods: Callable[..., Any]) -> Undo:
    """Other methods for one layer, under the name of its class."""
    kind = type(layer)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    layer.__class__ = type(kind.__name__, (kind,), {**methods, **names})

    def undo() -> None:
        layer.__class__ = kind

    return undo


def transposed(layer: nn.Layer) -> Undo:
    """A linear layer that multiplies by the transposed weight."""
    return replaced(layer, forward=lambda self, x: F.linear(x, self.weight.T, self.bias))


class _Triple(paddle.autograd.PyLayer):
    """Identity with three times the gradient."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return gradient * 3.0


def tripled_gradient(layer: nn.Layer) -> Undo:
    """A layer that hands on three times its gradient."""
    own = type(layer).forward
    return replaced(layer, forward=lambda self, x: _Triple.apply(own(self, x)))


@dataclass(frozen=True)
class ModelFault:
    """A fault in a built model.

    Attributes:
        name: of the control; that of the catalogue where it holds the same fault.
        find: what is changed.
        change: changes it, and says how it is undone.
        part: of what was found, where the change is made.
        dtypes: precisions in which it must be seen; an epsilon is invisible in float32.
        backward_only: leaves the forward pass as it is.
    """

    name: str
    find: Find
    change: Callable[[Any], Undo]
    part: str = ""
    dtypes: tuple[str, ...] = ("float64", "float32")
    backward_only: bool = False


@contextlib.contextmanager
def planted(fault: ModelFault, model: nn.Layer) -> Iterator[str | None]:
    """Plant a fault for the length of the block; yields where, None where it does not apply."""
    found = fault.find(model)
    if found is None:
        yield None
        return
    name, held = found
    undo = fault.change(held)
    try:
        yield name + fault.part
    finally:
        undo()


def _first(*kinds: type, accept: Callable[[Any], bool] = lambda layer: True) -> Find:
    """The first layer of some kinds."""

    def find(model: nn.Layer) -> tuple[str, Any] | None:
        layers = model.named_sublayers()
        return next((one for one in layers if isinstance(one[1], kinds) and accept(one[1])), None)

    return find


def _set(parameter: paddle.Tensor, value: np.ndarray) -> Undo:
    original = parameter.numpy().copy()
    parameter.set_value(value.astype(original.dtype))
    return lambda: parameter.set_value(original)


def _larger_epsilon(layer: nn.Layer) -> Undo:
    name = "_epsilon" if isinstance(layer, nn.LayerNorm) else "epsilon"
    return put(layer, **{name: max(1e-5, 10 * getattr(layer, name))})


def _is_square(layer: nn.Linear) -> bool:
    return layer.weight.shape[0] == layer.weight.shape[1]


def _swapped_halves(layer: nn.Layer) -> Undo:
    w, r = np.split(layer.wr.weight.numpy(), 2, axis=1)
    return _set(layer.wr.weight, np.concatenate([r, w], axis=1))


def _lower_triangle(layer: nn.Layer) -> Undo:
    """The triangle read along its columns: the same numbers of a symmetric matrix, moved."""
    crossed = isinstance(layer, MultiHeadCrossCovariance)
    size = layer.wr_dim if crossed else layer.proj.weight.shape[1]
    upper = [(r, c) for r in range(size) for c in range(r, size)]
    order = sorted(range(len(upper)), key=lambda place: upper[place][::-1])
    own = type(layer).forward

    def forward(self: Any, *inputs: Any) -> paddle.Tensor:
        pooled = own(self, *inputs)
        groups = pooled.reshape([-1, len(upper)])
        return groups[:, paddle.to_tensor(order)].reshape(pooled.shape)

    return replaced(layer, forward=forward)


def _layers_before_widths(layer: nn.Layer) -> Undo:
    """The pooled states flattened in another order: the same numbers, moved."""
    own = type(layer).forward

    def forward(self: Any, states: paddle.Tensor) -> paddle.Tensor:
        pooled = own(self, states)
        return pooled.transpose([0, 1, 3, 2]).reshape(pooled.shape)

    return replaced(layer, forward=forward)


def _next_probe(layer: nn.Layer) -> Undo:
    first, *others = layer.word_fc
    turned = [*others, first]

    def scores(self: Any, states: paddle.Tensor) -> paddle.Tensor:
        parts = [probe(states[:, at]) for at, probe in enumerate(turned)]
        return paddle.stack(parts, axis=1)

    return replaced(layer, scores=scores)


def _classifier(model: nn.Layer) -> tuple[str, nn.Layer] | None:
    """The classifier that makes the scores; one without a bias has none to be shifted."""
    scoring = ("word_fc", "cls_fc", "word_fc.0")  # the last is the first of several probes
    layers = ((n, s) for n, s in model.named_sublayers() if isinstance(s, nn.Linear))
    scores = ((n, s) for n, s in layers if n.endswith(scoring) and s.bias is not None)
    return next(scores, None)


def _shifted_scores(layer: nn.Layer) -> Undo:
    bias = layer.bias.numpy()  # an equal shift of all classes would not change a softmax
    return _set(layer.bias, bias + 0.1 * np.arange(1, bias.size + 1))


def _exchanged_queries_and_keys(layer: nn.Layer) -> Undo:
    undo = []
    for held in (layer.qkv.weight, layer.qkv.bias):
        if held is not None:  # a table of positions is not symmetric, so the sides matter
            queries, keys, values = np.split(held.numpy(), 3, axis=-1)
            undo.append(_set(held, np.concatenate([keys, queries, values], axis=-1)))
    return lambda: [step() for step in undo] and None


def _positions(model: nn.Layer) -> tuple[str, paddle.Tensor] | None:
    table = getattr(model, "pos_embed", None)
    return None if table is None else ("pos_embed", table)


def _running_variance(model: nn.Layer) -> tuple[str, nn.Layer] | None:
    return _first(TokenBatchNorm)(model) if model.training else None


def _biased(layer: nn.Layer) -> Undo:
    """Paddle's own convention: normalisation is the same, the stored variance is not."""
    own = type(layer)._update_running

    def update(self: Any, mean: paddle.Tensor, var: paddle.Tensor, count: paddle.Tensor) -> None:
        own(self, mean, var * ((count - 1.0) / count), count)

    return replaced(layer, _update_running=update)


def _without_parameters(model: nn.Layer) -> tuple[str, nn.Layer] | None:
    """The head's last dropout, else the first one, else its GELU."""
    layers = [one for one in model.named_sublayers() if isinstance(one[1], nn.Dropout)]
    in_head = [one for one in layers if one[0].startswith("head")]
    return next(iter([*in_head[::-1], *layers]), None) or _first(nn.GELU)(model)


_UPPER = _first(
    MultiHeadCrossCovariance, BranchCovariance, accept=lambda layer: layer.upper_triangle
)
_OTHER_ACTIVATION = _first(
    nn.TransformerEncoderLayer, accept=lambda layer: layer.activation is not _DEFAULT_ACTIVATION
)
"""Of the options: the default's is not exchanged."""
MODEL_FAULTS: tuple[ModelFault, ...] = (
    ModelFault(
        "layer_norm_epsilon", _first(nn.LayerNorm, RowLayerNorm), _larger_epsilon, "", ("float64",)
    ),
    ModelFault("square_weight_transposed", _first(nn.Linear, accept=_is_square), transposed),
    ModelFault("w_and_r_swapped", _first(MultiHeadCrossCovariance), _swapped_halves, ".wr"),
    ModelFault("svpn_exponent", _first(SvPN), lambda layer: put(layer, alpha=0.98 * layer.alpha)),
    ModelFault(
        "activation_exchanged",
        _OTHER_ACTIVATION,
        lambda layer: put(layer, activation=_DEFAULT_ACTIVATION),
    ),
    ModelFault("upper_triangle_by_columns", _UPPER, _lower_triangle),
    ModelFault(
        "matrix_root_skipped",
        _first(MatrixSqrt),
        lambda layer: replaced(layer, forward=lambda self, x: x),
    ),
    ModelFault(
        "token_norm_epsilon",
        _first(TokenBatchNorm),
        lambda layer: put(layer, epsilon=10 * max(1e-4, layer.epsilon)),
    ),
    ModelFault(
        "attention_query_and_key_swapped", _first(Attention), _exchanged_queries_and_keys, ".qkv"
    ),
    ModelFault(
        "positions_off_by_one", _positions, lambda held: _set(held, np.roll(held.numpy(), 1, 1))
    ),
    ModelFault(
        "swin_windows_not_shifted",
        _first(SwinBlock, accept=lambda layer: layer.shift > 0),
        lambda layer: put(layer, shift=0),
    ),
    ModelFault(
        "pooler_bias_shifted",
        _first(PoolerHead),
        lambda layer: _set(layer.dense.bias, layer.dense.bias.numpy() + 1e-2),
        ".dense",
    ),
    ModelFault(
        "class_token_of_the_layer_before",
        _first(LayerTokensHead),
        lambda head: put(head, layers=tuple(max(0, layer - 1) for layer in head.layers)),
    ),
    ModelFault("layers_before_widths", _first(AdapterPooler), _layers_before_widths),
    ModelFault("probe_of_the_next_layer", _first(LayerProbes), _next_probe, ".word_fc"),
    ModelFault("classifier_bias_shifted", _classifier, _shifted_scores),
    ModelFault(
        "token_norm_biased_running_variance",
        _running_variance,
        _biased,
        dtypes=("float64",),  # a momentum of .99 hides it in float32's rounding
    ),
    ModelFault(
        "gradient_tripled_in_a_layer_without_parameters",
        _without_parameters,
        tripled_gradient,
        backward_only=True,
    ),
)


def recipe_faults(step: str, recipe: Recipe) -> Mapping[str, Recipe]:
    """The name of each fault and the recipe with it.

    Args:
        step: ``optimizer`` (single updates) or ``training`` (a run with its schedule).
        recipe: the right one.
    """
    faults = {"decay_missing": replace(recipe, weight_decay=0.0)}
    if step == "optimizer":
        other = "adamw" if recipe.optimizer == "hf_adamw" else "hf_adamw"
        if not recipe.correct_bias:
            faults["adam_bias_corrected"] = replace(recipe, correct_bias=True)
        return {
            **faults,
            "adamw_of_the_other_library": replace(recipe, optimizer=other, correct_bias=True),
            "adam_epsilon": replace(recipe, epsilon=10 * recipe.epsilon),
            "clipping_limit": replace(recipe, clip_norm=(recipe.clip_norm or 1) / 2),
        }
    if recipe.clip_norm is not None:
        faults["clipping_missing"] = replace(recipe, clip_norm=None)
    if recipe.ema_decay is not None:
        slower = 1.0 - 0.99 * (1.0 - recipe.ema_decay)
        faults["moving_average_slower"] = replace(recipe, ema_decay=slower)
    if recipe.by_epoch is None:
        longer = replace(recipe, warmup_steps=recipe.warmup_steps + 1)
        return {**faults, "warm_up_one_step_longer": longer}
    epochs = recipe.by_epoch
    late = replace(epochs, warmup_epochs=epochs.warmup_epochs + 1)
    by_step = replace(epochs, steps=1)
    other_rule = {"text": "vision", "vision": "text"}[recipe.decay]
    return {
        **faults,
        "warm_up_one_epoch_longer": replace(recipe, by_epoch=late),
        "schedule_stepped_every_step": replace(recipe, by_epoch=by_step),
        "decay_by_the_other_rule": replace(recipe, decay=other_rule),
    }
