"""Batch norm, 1x1 convolution and pooling in one operator are the framework's."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.token_stages import Transition
from sot_paddle.ops import transition

native = pytest.mark.native
SHAPES = [(2, 3, 6, 8), (2, 5, 7, 5), (3, 17, 2, 2), (3, 2, 66, 70)]
OUT = 4


def made(channels: int, *, pool: bool = True, train: bool = True, dtype: str = "float32"):
    """A transition whose parameters and running values are none of the defaults."""
    paddle.seed(5)
    layer, rng = Transition(channels, OUT, pool=pool), np.random.default_rng(6)
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


def close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], rtol: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=rtol, atol=rtol * np.abs(value).max(), err_msg=name
        )


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(2.0, 3.0, shape).astype("float32")


@native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_values_and_gradients(called, shape, pool, train) -> None:
    x, options = drawn(*shape), {"pool": pool, "train": train}
    found = step(made(shape[1], **options), x)
    assert called == ["sot_transition"]
    double = step(made(shape[1], **options, dtype="float64"), x.astype("float64"))
    close(found, double, 3e-5 if np.prod(shape) < 20 * shape[1] else 3e-6)


@native
def test_a_mean_far_from_zero_leaves_the_variance(called) -> None:
    x = drawn(3, 4, 8, 8) * 1e-2 + 100.0
    found = step(made(4), x)
    double = step(made(4, dtype="float64"), x.astype("float64"))
    np.testing.assert_allclose(found["norm.running_var"], double["norm.running_var"], rtol=1e-6)
    np.testing.assert_allclose(found["value"], double["value"], rtol=2e-3)
    assert called == ["sot_transition"]


@native
def test_the_number_of_threads_changes_nothing(threads) -> None:
    found = []
    for count in (1, 3):
        threads(count)
        found.append(step(made(5), drawn(3, 5, 70, 64)))
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


@native
def test_strided_views_double_use_and_repeated_backward(plainly) -> None:
    def composed() -> dict[str, np.ndarray]:
        layer = made(4)
        tensor = paddle.to_tensor(drawn(2, 8, 6, 6), stop_gradient=False)
        y = layer(tensor[:, ::2].transpose([0, 1, 3, 2])) * layer(tensor[:, 1::2])
        y.sum().backward(retain_graph=True)
        once = tensor.grad.numpy().copy()
        y.sum().backward()
        np.testing.assert_allclose(tensor.grad.numpy(), 2 * once, rtol=1e-6, atol=1e-6)
        grads = {name: p.grad.numpy() for name, p in layer.named_parameters()}
        return {"value": y.numpy(), "input": once, **grads}

    close(composed(), plainly(composed)(), 3e-5)


@native
def test_frozen_weights_nothing_kept_and_one_derivative() -> None:
    layer = made(3)
    for p in layer.parameters():
        p.stop_gradient = True
    x = paddle.to_tensor(drawn(2, 3, 4, 4), stop_gradient=False)
    layer(x).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in layer.parameters())
    with paddle.no_grad():
        assert layer(x).is_leaf
    (first,) = paddle.grad((made(3)(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(OSError, match="SOT_PADDLE_NATIVE=0 for second derivatives"):
        paddle.grad(first.sum(), x)


@native
def test_one_value_for_each_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="more than one value for each channel"):
        made(3, pool=False)(paddle.ones([1, 3, 1, 1]))


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x = paddle.to_tensor(drawn(2, 3, 4, 4))
    for part in ("norm", "conv", "pool"):
        layer = made(3)
        getattr(layer, part).register_forward_post_hook(lambda *_: None)
        layer(x)
    shared = made(3)
    shared.norm.sum_across_processes = lambda total: total
    shared(x)
    assert not transition.takes(x[:0], *[paddle.ones([3])] * 2)
    assert not transition.takes(x, *[paddle.ones([3], "float64")] * 2)
    monkeypatch.setattr(F, "avg_pool2d", lambda given, *_, **__: given)
    made(3)(x)
    assert "sot_transition" not in called
