"""One step of a layer over images, and whether two of them agree."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import paddle
from paddle import nn

from tests.sot_paddle.ops.properties import walked_twice

Layer = TypeVar("Layer", bound=nn.Layer)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(2.0, 3.0, shape).astype("float32")


def redrawn(layer: Layer, *, train: bool, dtype: str) -> Layer:
    """The layer with parameters and running values that are none of the defaults."""
    rng = np.random.default_rng(6)
    layer.to(dtype=dtype)
    for value in layer.state_dict().values():
        value.set_value((0.5 + rng.random(value.shape)).astype(dtype))
    return layer.train() if train else layer.eval()


def step(layer: nn.Layer, x: np.ndarray) -> dict[str, np.ndarray]:
    """Value, gradients, and running values afterwards."""
    tensor = paddle.to_tensor(x, stop_gradient=False)
    y = layer(tensor)
    g = np.random.default_rng(4).normal(size=y.shape).astype(x.dtype)
    y.backward(paddle.to_tensor(g))
    found = {"value": y.numpy(), "input": tensor.grad.numpy()}
    found |= {name: p.grad.numpy() for name, p in layer.named_parameters() if p.grad is not None}
    return found | {name: value.numpy() for name, value in layer.named_buffers()}


def views_twice(layer: nn.Layer) -> dict[str, np.ndarray]:
    """Value and gradients of two uses on strided views, walked back through twice."""
    tensor = paddle.to_tensor(drawn(2, 8, 6, 6), stop_gradient=False)
    y = layer(tensor[:, ::2].transpose([0, 1, 3, 2])) * layer(tensor[:, 1::2])
    (once,) = walked_twice(y.sum(), [tensor], atol=1e-6)
    grads = {name: p.grad.numpy() for name, p in layer.named_parameters()}
    return {"value": y.numpy(), "input": once, **grads}


def close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], rtol: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        atol = rtol * max(1.0, np.abs(value).max())
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol, err_msg=name)
