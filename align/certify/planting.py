"""How faults are planted: an edit of the source, a changed layer, other arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F

from align.certify.scene import Scene
from align.certify.source_edit import SourceEdit

Plant = Callable[[Scene], Scene]
Change = Callable[[Any], None]
"""Of a built Paddle layer, in place."""


def edited(target: str, old: str, new: str) -> Plant:
    """A line of the Paddle side's source changed.

    Args:
        target: "package.module:Class.method".
        old: text that occurs once in it.
        new: what stands there instead.
    """
    edit = SourceEdit(target, old, new)
    return lambda scene: dataclasses.replace(scene, edits=(*scene.edits, edit))


def attribute(layer: str, name: str, value: Any) -> Plant:
    """An attribute of one Paddle layer set to another value.

    Args:
        layer: its name in the model.
        name: of the attribute; it has to exist.
        value: the wrong value.
    """

    def change(model: Any) -> None:
        held = layer_of(model, layer)
        if not hasattr(held, name):
            raise ValueError(f"{layer} has no attribute {name!r}: nothing would be planted")
        if getattr(held, name) is value or getattr(held, name) == value:
            raise ValueError(f"{layer}.{name} is {value!r} already: nothing would be planted")
        setattr(held, name, value)

    return changed(change)


def changed(change: Callable[[Any], None]) -> Plant:
    """The built Paddle layer changed in place."""

    def plant(scene: Scene) -> Scene:
        build = scene.paddle_layer

        def spoiled() -> Any:
            model = build()
            change(model)
            return model

        return dataclasses.replace(scene, paddle_layer=spoiled)

    return plant


def given(**options: Any) -> Plant:
    """Other arguments of the comparison itself, such as the precision in which a fault can run."""
    return lambda scene: dataclasses.replace(scene, **options)


def together(*plants: Plant) -> Plant:
    """Several changes that make one fault."""

    def plant(scene: Scene) -> Scene:
        for one in plants:
            scene = one(scene)
        return scene

    return plant


def layer_of(model: nn.Layer, name: str) -> Any:
    """The layer of that name.

    Raises:
        ValueError: the model has none.
    """
    held = dict(model.named_sublayers(include_self=True))
    if name not in held:
        raise ValueError(f"{name}: the model has no such layer, so nothing would be planted")
    return held[name]


def replaced(name: str, forward: Callable[[Any, Any], Any]) -> Change:
    """Another forward method for one layer."""

    def change(model: nn.Layer) -> None:
        layer = layer_of(model, name)
        kind = type(layer)
        layer.__class__ = type(kind.__name__, (kind,), {"forward": forward})
        layer.__class__.__module__, layer.__class__.__qualname__ = (
            kind.__module__,
            kind.__qualname__,
        )

    return change


def batch_statistics(name: str) -> Change:
    """A batch norm that uses the batch's statistics in eval mode too."""

    def forward(self: Any, x: paddle.Tensor) -> paddle.Tensor:
        held = self._mean.clone(), self._variance.clone()
        return F.batch_norm(x, *held, self.weight, self.bias, True, self._momentum, self._epsilon)

    return replaced(name, forward)


def activation(name: str, function: str) -> Change:
    """Another activation function in the transformer layers of a list."""

    def change(model: nn.Layer) -> None:
        for layer in layer_of(model, name):
            layer.activation = getattr(F, function)

    return change


def without_bias(name: str) -> Change:
    """A linear layer that does not add its bias."""
    return replaced(name, lambda self, x: F.linear(x, self.weight))


def transposed(name: str) -> Change:
    """A linear layer that multiplies by the transposed weight."""
    return replaced(name, lambda self, x: F.linear(x, self.weight.T, self.bias))


def dropout_always(name: str, p: float) -> Change:
    """A dropout that drops in eval mode too."""

    def forward(self: Any, x: paddle.Tensor) -> paddle.Tensor:
        return F.dropout(x, p, training=True)

    return replaced(name, forward)


def dropout_downscaled(name: str, p: float) -> Change:
    """A dropout in Paddle's other mode, which scales in eval mode."""

    def change(model: nn.Layer) -> None:
        layer = layer_of(model, name)
        layer.p, layer.mode = p, "downscale_in_infer"

    return change


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


def tripled_gradient(name: str) -> Change:
    """A layer that hands on three times its gradient."""

    def change(model: nn.Layer) -> None:
        own = type(layer_of(model, name)).forward
        replaced(name, lambda self, x: _Triple.apply(own(self, x)))(model)

    return change


def straight_through(name: str) -> Change:
    """A ReLU whose backward pass lets everything through."""
    return replaced(name, lambda self, x: _StraightThrough.apply(x))


def frozen(name: str) -> Change:
    """A parameter that is not trained."""

    def change(model: nn.Layer) -> None:
        dict(model.named_parameters())[name].stop_gradient = True

    return change


CHANGES: Mapping[str, Callable[..., Change]] = {
    function.__name__: function
    for function in (
        activation,
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
"""Name in the catalogue -> what takes a layer's name (and numbers) and returns the change."""
