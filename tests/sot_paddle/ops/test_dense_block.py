"""A dense block of the token embedding is the framework's: small integers, so to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.token_stages import DenseBlock
from sot_paddle.ops import dense_block
from tests.sot_paddle.ops.properties import (
    assert_one_derivative,
    assert_same_in_threads,
    same,
    walked_twice,
)

native = pytest.mark.native
SHAPES = [(2, 3, 5, 7), (1, 5, 1, 1), (3, 2, 1, 50), (2, 17, 19, 4), (1, 4, 33, 40)]


def integers(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype("float32")


def block(channels: int, *, batch_norm: bool = False) -> DenseBlock:
    """Two layers with weights of small integers."""
    made = DenseBlock(channels, num_layers=2, batch_norm=batch_norm)
    for place, layer in enumerate(made.layers):
        for side in ("conv1", "conv2"):
            weight = getattr(layer, side).weight
            drawn = np.random.default_rng(place).random(weight.shape)
            weight.set_value((drawn > 0.9).astype("float32") - (drawn < 0.1))
    return made


def step(made: nn.Layer, x: np.ndarray) -> list[np.ndarray]:
    """Value, gradients of the input and of the weights."""
    tensor = paddle.to_tensor(x, stop_gradient=False)
    y = made(tensor)
    y.backward(paddle.to_tensor(integers(*y.shape, seed=4)))
    weights = [weight.grad.numpy() for weight in made.parameters()]
    made.clear_gradients()
    return [y.numpy(), tensor.grad.numpy(), *weights]


@native
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(plainly, called, threads, shape) -> None:
    made, x = block(shape[1]), integers(*shape)
    found = step(made, x)
    assert called == ["sot_dense_block"]
    same(found, plainly(step)(made, x))
    threads(2)
    same(step(made, x), found)


@native
def test_the_number_of_threads_changes_no_sum(threads) -> None:
    made = DenseBlock(3)
    x = np.random.default_rng(1).normal(size=(3, 3, 40, 40)).astype("float32")
    # images after one another with four
    assert_same_in_threads(threads, lambda: step(made, x), counts=(1, 2, 4))


@native
def test_strided_views_double_use_and_repeated_backward(plainly) -> None:
    made = block(4)

    def composed(x: np.ndarray) -> list[np.ndarray]:
        tensor = paddle.to_tensor(x, stop_gradient=False)
        y = made(tensor[:, ::2].transpose([0, 1, 3, 2])) * made(tensor[:, 1::2])
        (once,) = walked_twice(y.sum(), [tensor], rtol=0.0)
        weights = [weight.grad.numpy() for weight in made.parameters()]
        made.clear_gradients()
        return [y.numpy(), once, *weights]

    x = integers(2, 8, 6, 6)
    same(composed(x), plainly(composed)(x))


@native
def test_frozen_weights_get_no_gradient_and_nan_is_not_lost(called) -> None:
    made, x = block(3), integers(1, 3, 4, 4)
    for weight in made.parameters():
        weight.stop_gradient = True
    x[0, 0, 0, 0] = np.nan
    tensor = paddle.to_tensor(x, stop_gradient=False)
    y = made(tensor)
    y.sum().backward()
    assert called == ["sot_dense_block"]
    assert np.isnan(y.numpy()[0, 3:]).any()
    assert tensor.grad.shape == [1, 3, 4, 4]
    assert all(weight.grad is None for weight in made.parameters())


@native
def test_nothing_is_kept_without_gradients_and_two_derivatives_are_refused() -> None:
    made, x = block(3), paddle.to_tensor(integers(1, 3, 4, 4), stop_gradient=False)
    with paddle.no_grad():
        assert made(x).is_leaf
    assert_one_derivative(made(x), x)


def hooked(place: Callable[[DenseBlock], nn.Layer]) -> DenseBlock:
    made = block(3)
    place(made).register_forward_post_hook(lambda *_: None)
    return made


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x = paddle.to_tensor(integers(2, 3, 4, 4))
    block(3, batch_norm=True)(x)
    for place in (lambda b: b.layers[1], lambda b: b.layers[0].conv2, lambda b: b.layers[1].norm1):
        hooked(place)(x)
    double = block(3)
    double.to(dtype="float64")
    assert double(x.astype("float64")).dtype == paddle.float64
    weights = list(block(3).parameters())
    assert not dense_block.takes(x[:0], weights)
    assert not dense_block.takes(x, [weight.astype("float64") for weight in weights])
    monkeypatch.setattr(F, "relu", lambda given: given)
    block(3)(x)
    assert "sot_dense_block" not in called
