"""What a model costs: multiply-adds by two conventions.

They are counted by forward hooks while the model really runs on one sample.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import nn

from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.token_stages import NonLocalBlock
from sot_paddle.heads.pooling import (
    BranchCovariance,
    CovariancePooling,
    MultiHeadCrossCovariance,
    QKCrossCovariance,
)
from sot_paddle.heads.power_norm import MatrixSqrt

Shape = list[int]


@dataclass
class MultiplyAdds:
    """Multiply-adds of one sample.

    Matrix-vector products of svPN, normalisations and activations are not counted.
    """

    layers: int = 0  # of convolutions and linear layers only: the published figures' convention
    products: int = 0  # of the other matrix products: attention, covariances, matrix roots

    @property
    def total(self) -> int:
        """Both together."""
        return self.layers + self.products


def _linear(layer: nn.Linear, x_shape: Shape, out_shape: Shape) -> int:
    return math.prod([*x_shape[:-1], *layer.weight.shape])


def _convolution(layer: nn.Conv2D, x_shape: Shape, out_shape: Shape) -> int:
    return math.prod([*out_shape, *layer.weight.shape[1:]])  # channels of a group x kernel


def _attention(layer: nn.Layer, x_shape: Shape, out_shape: Shape) -> int:
    return 2 * x_shape[0] * x_shape[1] ** 2 * x_shape[2]  # q k^T and weights v


def _non_local(layer: NonLocalBlock, x_shape: Shape, out_shape: Shape) -> int:
    return 2 * x_shape[0] * (x_shape[2] * x_shape[3]) ** 2 * layer.inner_dim


def _heads(layer: MultiHeadCrossCovariance, x_shape: Shape, out_shape: Shape) -> int:
    return x_shape[0] * x_shape[1] * layer.num_heads * layer.wr_dim**2


def _queries_and_keys(layer: QKCrossCovariance, x_shape: Shape, out_shape: Shape) -> int:
    return x_shape[0] * x_shape[1] * layer.output_dim


def _covariance(layer: nn.Layer, x_shape: Shape, out_shape: Shape) -> int:
    reduction = layer.dr if isinstance(layer, CovariancePooling) else layer.proj
    return x_shape[0] * x_shape[1] * reduction.weight.shape[1] ** 2


def _matrix_sqrt(layer: MatrixSqrt, x_shape: Shape, out_shape: Shape) -> int:
    # one product for the first iteration, three for each in between, two for the last
    products = 1 + 3 * max(layer.num_iter - 2, 0) + 2 * (layer.num_iter > 1)
    return products * x_shape[0] * x_shape[1] ** 3


_LAYERS = {nn.Conv2D: _convolution, nn.Linear: _linear}
_COUNTERS: Mapping[type[nn.Layer], Callable[[Any, Shape, Shape], int]] = {
    **_LAYERS,
    Attention: _attention,
    nn.MultiHeadAttention: _attention,
    NonLocalBlock: _non_local,
    MultiHeadCrossCovariance: _heads,
    QKCrossCovariance: _queries_and_keys,
    CovariancePooling: _covariance,
    BranchCovariance: _covariance,
    MatrixSqrt: _matrix_sqrt,
}
"""Kind of layer -> multiply-adds of a call, from the layer and the shapes of input and output."""


def count_multiply_adds(model: nn.Layer, *inputs: paddle.Tensor) -> MultiplyAdds:
    """Count the multiply-adds of one forward pass, in eval mode, in which the model stays.

    Not by ``paddle.flops``, which counts layers without sublayers only: the products of attention
    and of a covariance are computed in layers that have some.

    Args:
        inputs: what its forward takes. None means one image of a vision model's size.

    Returns:
        Multiply-adds of the whole batch.
    """
    if not inputs:
        config = model.backbone_config
        inputs = (paddle.zeros([1, config.in_chans, config.img_size, config.img_size]),)
    totals, handles = MultiplyAdds(), []
    for layer in model.sublayers(include_self=True):
        for kind in _COUNTERS:
            if isinstance(layer, kind):
                hook = functools.partial(_add, totals, kind)
                handles.append(layer.register_forward_post_hook(hook))
    model.eval()
    with paddle.no_grad():
        model(*inputs)
    for handle in handles:
        handle.remove()
    return totals


def _add(totals: MultiplyAdds, kind: type, layer: nn.Layer, inputs: tuple, outputs: Any) -> None:
    """Add what a call of a layer costs; a hook."""
    out = outputs[0] if isinstance(outputs, tuple | list) else outputs
    count = _COUNTERS[kind](layer, inputs[0].shape, out.shape)
    if kind in _LAYERS:
        totals.layers += count
    else:
        totals.products += count
