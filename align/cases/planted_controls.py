"""Negative controls: faults that each step plants in the Paddle side and must catch, every run.

A model fault changes the built Paddle model and is undone afterwards. A control is caught when the
step's own comparison then fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import nn

from align.cases.covered.pause import unmeasured
from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.swin_blocks import SwinBlock
from sot_paddle.heads.adapter_pooler import AdapterPooler
from sot_paddle.heads.fusion import PoolerHead
from sot_paddle.heads.layer_probes import LayerProbes
from sot_paddle.heads.pooling import (
    BranchCovariance,
    MultiHeadCrossCovariance,
    TokenBatchNorm,
)
from sot_paddle.heads.power_norm import MatrixSqrt, RowLayerNorm, SvPN

Undo = Callable[[], None]
_DEFAULT_ACTIVATION = nn.functional.gelu


@dataclass(frozen=True)
class ModelFault:
    """A fault in a built model.

    Attributes:
        name: of the control.
        plant: changes the model, returns (where, undo), or None where it does not apply.
        dtypes: precisions in which it must be seen; an epsilon is invisible in float32.
        backward_only: leaves the forward pass as it is.
    """

    name: str
    plant: Callable[[nn.Layer], tuple[str, Undo] | None]
    dtypes: tuple[str, ...] = ("float64", "float32")
    backward_only: bool = False


@contextlib.contextmanager
def planted(fault: ModelFault, model: nn.Layer) -> Iterator[str | None]:
    """Plant a fault for the length of the block; yields where, None where it does not apply."""
    found = fault.plant(model)
    if found is None:
        yield None
        return
    where, undo = found
    try:
        with unmeasured():  # what runs with a fault is not compared
            yield where
    finally:
        undo()


def _first(model: nn.Layer, kind: type | tuple[type, ...], accept: Callable = lambda layer: True):
    for name, layer in model.named_sublayers():
        if isinstance(layer, kind) and accept(layer):
            return name, layer
    return None


def _replace_weight(parameter: paddle.Tensor, value: np.ndarray) -> Undo:
    original = parameter.numpy().copy()
    parameter.set_value(value.astype(original.dtype))
    return lambda: parameter.set_value(original)


def _replace_attribute(layer: object, attribute: str, value: object) -> Undo:
    original = getattr(layer, attribute)
    setattr(layer, attribute, value)
    return lambda: setattr(layer, attribute, original)


def _layer_norm_epsilon(model: nn.Layer):
    found = _first(model, (nn.LayerNorm, RowLayerNorm))
    if found is None:
        return None
    name, layer = found
    attribute = "_epsilon" if isinstance(layer, nn.LayerNorm) else "epsilon"
    larger = max(1e-5, 10 * getattr(layer, attribute))
    return name, _replace_attribute(layer, attribute, larger)


def _transposed_weight(model: nn.Layer):
    found = _first(model, nn.Linear, lambda layer: layer.weight.shape[0] == layer.weight.shape[1])
    if found is None:
        return None
    name, layer = found
    return name, _replace_weight(layer.weight, layer.weight.numpy().T.copy())


def _swapped_w_and_r(model: nn.Layer):
    found = _first(model, MultiHeadCrossCovariance)
    if found is None:
        return None
    name, layer = found
    weight = layer.wr.weight.numpy()
    half = weight.shape[1] // 2
    swapped = np.concatenate([weight[:, half:], weight[:, :half]], axis=1)
    return f"{name}.wr", _replace_weight(layer.wr.weight, swapped)


def _svpn_exponent(model: nn.Layer):
    found = _first(model, SvPN)
    if found is None:
        return None
    name, layer = found
    return name, _replace_attribute(layer, "alpha", layer.alpha * 0.98)


def _exchanged_activation(model: nn.Layer):
    """Another activation than the one of the options; the default's is not exchanged here."""
    found = _first(
        model, nn.TransformerEncoderLayer, lambda layer: layer.activation is not _DEFAULT_ACTIVATION
    )
    if found is None:
        return None
    name, layer = found
    return name, _replace_attribute(layer, "activation", _DEFAULT_ACTIVATION)


def _lower_triangle(model: nn.Layer):
    """The triangle read along its columns: the same numbers of a symmetric matrix, moved."""
    found = _first(
        model,
        (MultiHeadCrossCovariance, BranchCovariance),
        lambda layer: layer.upper_triangle,
    )
    if found is None:
        return None
    name, layer = found
    original = layer.forward

    def lower(*inputs: object) -> paddle.Tensor:
        size = (
            layer.wr_dim
            if isinstance(layer, MultiHeadCrossCovariance)
            else layer.proj.weight.shape[1]
        )
        pooled = original(*inputs)
        groups = pooled.reshape([-1, size * (size + 1) // 2])
        upper = [(r, c) for r in range(size) for c in range(r, size)]
        order = sorted(range(len(upper)), key=lambda place: upper[place][::-1])
        return groups[:, paddle.to_tensor(order)].reshape(pooled.shape)

    layer.forward = lower

    def undo() -> None:
        del layer.forward

    return name, undo


def _skipped_matrix_root(model: nn.Layer):
    found = _first(model, MatrixSqrt)
    if found is None:
        return None
    name, layer = found
    layer.forward = lambda x: x

    def undo() -> None:
        del layer.forward

    return name, undo


def _batch_norm_epsilon(model: nn.Layer):
    found = _first(model, TokenBatchNorm)
    if found is None:
        return None
    name, layer = found
    return name, _replace_attribute(layer, "epsilon", 10 * max(1e-4, layer.epsilon))


def _layers_before_widths(model: nn.Layer):
    """The pooled states flattened in another order: the same numbers, moved."""
    found = _first(model, AdapterPooler)
    if found is None:
        return None
    name, layer = found
    original = layer.forward

    def moved(states: paddle.Tensor) -> paddle.Tensor:
        pooled = original(states)
        return pooled.transpose([0, 1, 3, 2]).reshape(pooled.shape)

    layer.forward = moved

    def undo() -> None:
        del layer.forward

    return name, undo


def _probe_of_the_next_layer(model: nn.Layer):
    found = _first(model, LayerProbes)
    if found is None:
        return None
    name, layer = found
    first, *others = layer.word_fc
    turned = [*others, first]

    def scores(states: paddle.Tensor) -> paddle.Tensor:
        parts = [probe(states[:, at]) for at, probe in enumerate(turned)]
        return paddle.stack(parts, axis=1)

    layer.scores = scores

    def undo() -> None:
        del layer.scores

    return f"{name}.word_fc", undo


def _shifted_classifier_bias(model: nn.Layer):
    """The classifier that makes the scores: applies to every head."""
    layers = [(n, s) for n, s in model.named_sublayers() if isinstance(s, nn.Linear)]
    scoring = ("word_fc", "cls_fc", "word_fc.0")  # the last is the first of several probes
    used = [(n, s) for n, s in layers if n.endswith(scoring) and s.bias is not None]
    name, layer = used[0]
    bias = layer.bias.numpy()  # an equal shift of all classes would not change a softmax
    return name, _replace_weight(layer.bias, bias + 0.1 * np.arange(1, bias.size + 1))


def _shifted_pooler_bias(model: nn.Layer):
    found = _first(model, PoolerHead)
    if found is None:
        return None
    name, layer = found
    return f"{name}.dense", _replace_weight(layer.dense.bias, layer.dense.bias.numpy() + 1e-2)


def _exchanged_queries_and_keys(model: nn.Layer):
    found = _first(model, Attention)
    if found is None:
        return None
    name, layer = found
    queries, keys, values = np.split(layer.qkv.weight.numpy(), 3, axis=1)
    changed = np.concatenate([keys, queries, values], axis=1)
    undo = [_replace_weight(layer.qkv.weight, changed)]
    if layer.qkv.bias is not None:  # a table of positions is not symmetric, so the sides matter
        queries, keys, values = np.split(layer.qkv.bias.numpy(), 3)
        undo.append(_replace_weight(layer.qkv.bias, np.concatenate([keys, queries, values])))
    return f"{name}.qkv", lambda: [step() for step in undo] and None


def _shifted_positions(model: nn.Layer):
    table = getattr(model, "pos_embed", None)
    if table is None:
        return None
    return "pos_embed", _replace_weight(table, np.roll(table.numpy(), 1, axis=1))


def _lost_window_shift(model: nn.Layer):
    found = _first(model, SwinBlock, lambda layer: layer.shift > 0)
    if found is None:
        return None
    name, layer = found
    return name, _replace_attribute(layer, "shift", 0)


def _biased_running_variance(model: nn.Layer):
    """Paddle's own convention: normalisation is the same, the stored variance is not."""
    found = _first(model, TokenBatchNorm)
    if found is None or not model.training:
        return None
    name, layer = found
    original = layer._update_running

    def biased(mean: paddle.Tensor, var: paddle.Tensor, count: paddle.Tensor) -> None:
        original(mean, var * ((count - 1.0) / count), count)

    layer._update_running = biased

    def undo() -> None:
        del layer._update_running

    return name, undo


class _ScaledGradient(paddle.autograd.PyLayer):
    """Identity whose gradient is three times too large."""

    @staticmethod
    def forward(ctx, x: paddle.Tensor) -> paddle.Tensor:
        """Pass x on."""
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: paddle.Tensor) -> paddle.Tensor:
        """Scale the gradient."""
        return gradient * 3.0


def _gradient_times_three(model: nn.Layer):
    """A wrong gradient behind a layer without parameters: the head's dropout, or its GELU."""
    found = _first(model, nn.Dropout) or _first(model, nn.GELU)
    if found is None:
        return None
    name, layer = found
    for candidate, sublayer in model.named_sublayers():
        if isinstance(sublayer, nn.Dropout) and candidate.startswith("head"):
            name, layer = candidate, sublayer
    original = layer.forward
    layer.forward = lambda x: _ScaledGradient.apply(original(x))

    def undo() -> None:
        del layer.forward

    return name, undo


MODEL_FAULTS: tuple[ModelFault, ...] = (
    ModelFault("layer norm epsilon", _layer_norm_epsilon, ("float64",)),
    ModelFault("transposed square weight", _transposed_weight),
    ModelFault("W and R swapped", _swapped_w_and_r),
    ModelFault("svPN exponent 2 % off", _svpn_exponent),
    ModelFault("activation exchanged", _exchanged_activation),
    ModelFault("triangle read along its columns", _lower_triangle),
    ModelFault("matrix root skipped", _skipped_matrix_root),
    ModelFault("batch norm epsilon ten times larger", _batch_norm_epsilon),
    ModelFault("queries and keys exchanged", _exchanged_queries_and_keys),
    ModelFault("positions shifted by one", _shifted_positions),
    ModelFault("window shift lost", _lost_window_shift),
    ModelFault("pooler bias shifted", _shifted_pooler_bias),
    ModelFault("layers before widths", _layers_before_widths),
    ModelFault("the next layer's probe", _probe_of_the_next_layer),
    ModelFault("classifier bias shifted", _shifted_classifier_bias),
    ModelFault(
        "running variance biased",
        _biased_running_variance,
        ("float64",),  # a momentum of .99 hides it in float32's rounding
    ),
    ModelFault(
        "gradient x 3 in a layer without parameters",
        _gradient_times_three,
        ("float64", "float32"),
        True,
    ),
)
