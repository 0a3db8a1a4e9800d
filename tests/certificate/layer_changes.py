"""Changes of one built Paddle layer that make a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F


def layer_of(model: nn.Layer, name: str) -> Any:
    """The layer or the parameter of that name.

    Raises:
        ValueError: the model has none.
    """
    held = dict(model.named_parameters()) | dict(model.named_sublayers(include_self=True))
    if name not in held:
        raise ValueError(f"{name}: the model has no such layer, so nothing would be planted")
    return held[name]


def put(*owners: Any, **values: Any) -> None:
    """Set other values of attributes that exist already."""
    for owner in owners:
        for name, value in values.items():
            getattr(owner, name)
            setattr(owner, name, value)


def replaced(layer: nn.Layer, **methods: Callable[..., Any]) -> None:
    """Other methods for one layer, under the name of its class."""
    kind = type(layer)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    layer.__class__ = type(kind.__name__, (kind,), {**methods, **names})


def attribute(layer: Any, name: str, value: Any) -> None:
    """One attribute set to the wrong value.

    Raises:
        ValueError: it does not exist, or has this value already.
    """
    title = type(layer).__name__
    if not hasattr(layer, name):
        raise ValueError(f"{title} has no attribute {name!r}: nothing would be planted")
    if getattr(layer, name) is value or getattr(layer, name) == value:
        raise ValueError(f"{title}.{name} is {value!r} already: nothing would be planted")
    put(layer, **{name: value})


def batch_statistics(layer: nn.Layer) -> None:
    """A batch norm that uses the batch's statistics in eval mode too."""

    def forward(self: Any, x: paddle.Tensor) -> paddle.Tensor:
        held = self._mean.clone(), self._variance.clone()
        return F.batch_norm(x, *held, self.weight, self.bias, True, self._momentum, self._epsilon)

    replaced(layer, forward=forward)


def activation(layers: nn.LayerList, function: str) -> None:
    """Another activation function in the transformer layers of a list."""
    put(*layers, activation=getattr(F, function))


def without_bias(layer: nn.Layer) -> None:
    """A linear layer that does not add its bias."""
    replaced(layer, forward=lambda self, x: F.linear(x, self.weight))


def transposed(layer: nn.Layer) -> None:
    """A linear layer that multiplies by the transposed weight."""
    replaced(layer, forward=lambda self, x: F.linear(x, self.weight.T, self.bias))


def dropout_always(layer: nn.Layer, p: float) -> None:
    """A dropout that drops in eval mode too."""
    replaced(layer, forward=lambda self, x: F.dropout(x, p, training=True))


def dropout_downscaled(layer: nn.Layer, p: float) -> None:
    """A dropout in Paddle's other mode, which scales in eval mode."""
    put(layer, p=p, mode="downscale_in_infer")


class _Triple(paddle.autograd.PyLayer):
    """Identity with three times the gradient."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return gradient * 3.0


class _StraightThrough(paddle.autograd.PyLayer):
    """ReLU forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        return F.relu(x)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return gradient.clone()


def tripled_gradient(layer: nn.Layer) -> None:
    """A layer that hands on three times its gradient."""
    own = type(layer).forward
    replaced(layer, forward=lambda self, x: _Triple.apply(own(self, x)))


def straight_through(layer: nn.Layer) -> None:
    """A ReLU whose backward pass lets everything through."""
    replaced(layer, forward=lambda self, x: _StraightThrough.apply(x))


def frozen(parameter: paddle.Tensor) -> None:
    """A parameter that is not trained."""
    put(parameter, stop_gradient=True)


CHANGES: Mapping[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        activation,
        attribute,
        batch_statistics,
        dropout_always,
        dropout_downscaled,
        frozen,
        straight_through,
        transposed,
        tripled_gradient,
        without_bias,
    )
}
"""Name in the catalogue -> what changes a layer (with numbers)."""
