"""What a model costs: parameters, and multiply-adds by two conventions.

Multiply-adds are counted by forward hooks while the model really runs on one sample.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Parameters:
    """Numbers of values in a model."""

    trainable: int  # in parameters that the optimizer moves
    total: int  # in all parameters, frozen ones included
    buffers: int  # in persistent buffers: fixed position tables and running statistics


@dataclass(frozen=True)
class MultiplyAdds:
    """Multiply-adds of one sample.

    Matrix-vector products of svPN, normalisations and activations are not counted.
    """

    layers: int  # of convolutions and linear layers only, the convention of the published figures
    products: int  # of the other matrix products: attention, covariances, matrix roots

    @property
    def total(self) -> int:
        """Both together."""
        return self.layers + self.products


def count_parameters(model: nn.Layer) -> Parameters:
    """Count the values of a model's parameters and persistent buffers."""
    parameters = {id(p): p for p in model.parameters()}.values()
    total = sum(p.size for p in parameters)
    stored = sum(tensor.size for tensor in model.state_dict().values())
    trainable = sum(p.size for p in parameters if not p.stop_gradient)
    return Parameters(int(trainable), int(total), int(stored - total))


def _matrix_sqrt(layer: MatrixSqrt, x_shape: Shape, out_shape: Shape) -> int:
    # one product for the first iteration, three for each in between, two for the last
    products = 1 + 3 * max(layer.num_iter - 2, 0) + 2 * (layer.num_iter > 1)
    return products * x_shape[0] * x_shape[1] ** 3


def _attention(layer: nn.Layer, x_shape: Shape, out_shape: Shape) -> int:
    return 2 * x_shape[0] * x_shape[1] ** 2 * x_shape[2]  # q k^T and weights v


_Counter = Callable[[Any, Shape, Shape], int]
_LAYERS: Mapping[type[nn.Layer], _Counter] = {
    # of each output: channels of a group x kernel
    nn.Conv2D: lambda layer, x_shape, out_shape: math.prod([*out_shape, *layer.weight.shape[1:]]),
    nn.Linear: lambda layer, x_shape, out_shape: math.prod([*x_shape[:-1], *layer.weight.shape]),
}
_PRODUCTS: Mapping[type[nn.Layer], _Counter] = {
    Attention: _attention,
    nn.MultiHeadAttention: _attention,
    NonLocalBlock: lambda layer, x_shape, out_shape: (
        2 * x_shape[0] * (x_shape[2] * x_shape[3]) ** 2 * layer.inner_dim
    ),
    MultiHeadCrossCovariance: lambda layer, x_shape, out_shape: (
        x_shape[0] * x_shape[1] * layer.num_heads * layer.wr_dim**2
    ),
    QKCrossCovariance: lambda layer, x_shape, out_shape: x_shape[0] * x_shape[1] * layer.output_dim,
    CovariancePooling: lambda layer, x_shape, out_shape: (
        x_shape[0] * x_shape[1] * layer.dr.weight.shape[1] ** 2
    ),
    BranchCovariance: lambda layer, x_shape, out_shape: (
        x_shape[0] * x_shape[1] * layer.proj.weight.shape[1] ** 2
    ),
    MatrixSqrt: _matrix_sqrt,
}
"""Kind of layer -> multiply-adds of a call, from the layer and the shapes of input and output."""


def count_multiply_adds(model: nn.Layer, *inputs: paddle.Tensor) -> MultiplyAdds:
    """Count the multiply-adds of one forward pass, in eval mode and without gradients.

    Not by ``paddle.flops``, which counts layers without sublayers only: the products of attention
    and of a covariance are computed in layers that have some.

    Args:
        model: any; it is left as it was.
        inputs: what its forward takes. None means one image of a vision model's size.

    Returns:
        Multiply-adds of the whole batch.
    """
    if not inputs:
        config = model.backbone_config
        inputs = (paddle.zeros([1, config.in_chans, config.img_size, config.img_size]),)
    totals = {"layers": 0, "products": 0}

    def watch(layer: nn.Layer, group: str, count: _Counter) -> Any:
        def hook(layer: nn.Layer, layer_inputs: tuple, outputs: paddle.Tensor) -> None:
            out = outputs[0] if isinstance(outputs, tuple | list) else outputs
            totals[group] += count(layer, layer_inputs[0].shape, out.shape)

        return layer.register_forward_post_hook(hook)

    handles = [
        watch(layer, group, count)
        for layer in model.sublayers(include_self=True)
        for group, table in (("layers", _LAYERS), ("products", _PRODUCTS))
        for kind, count in table.items()
        if isinstance(layer, kind)
    ]
    modes = [(layer, layer.training) for layer in model.sublayers(include_self=True)]
    model.eval()
    try:
        with paddle.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
        for layer, training in modes:
            layer.training = training
    return MultiplyAdds(**totals)
