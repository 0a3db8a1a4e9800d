"""The stem of the token embedding is the framework's: to the last bit, on small integers."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.backbones.token_embed import _Stem
from sot_paddle.ops import stem
from tests.sot_paddle.ops.properties import (
    assert_one_derivative,
    assert_same_in_threads,
    same,
    walked_twice,
)

native = pytest.mark.native
SHAPES = [(2, 3, 8, 8), (1, 1, 1, 1), (3, 2, 5, 7), (2, 3, 35, 40), (1, 4, 70, 3)]


def integers(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, shape).astype("float32")


def made(channels: int, out: int = 11) -> _Stem:
    layer = _Stem(channels, out)
    for value in layer.parameters():
        value.set_value(integers(*value.shape, seed=5))
    return layer


def step(layer: _Stem, x: np.ndarray) -> list[np.ndarray]:
    """Value and gradients of weight and bias."""
    y = layer(paddle.to_tensor(x))
    y.backward(paddle.to_tensor(integers(*y.shape, seed=4)))
    found = [y.numpy(), *(value.grad.numpy() for value in layer.parameters())]
    layer.clear_gradients()
    return found


@native
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_the_first_of_equals_gets_it(plainly, called, shape) -> None:
    layer, x = made(shape[1]), integers(*shape)
    found = step(layer, x)
    assert called == ["sot_stem"]
    same(found, plainly(step)(layer, x))


@native
def test_the_number_of_threads_changes_nothing_and_views_are_read(threads, plainly) -> None:
    layer = _Stem(3, 20)
    x = np.random.default_rng(1).normal(size=(3, 3, 70, 66)).astype("float32")
    assert_same_in_threads(threads, lambda: step(layer, x))
    view = paddle.to_tensor(integers(2, 6, 9, 8))[:, ::2].transpose([0, 1, 3, 2])
    exact = made(3)
    np.testing.assert_array_equal(exact(view).numpy(), plainly(exact)(view).numpy())


@native
def test_repeated_backward_and_double_use() -> None:
    layer, x = made(3), paddle.to_tensor(integers(2, 3, 8, 8))
    y = layer(x)
    once = walked_twice((y * y).sum() + layer(x).sum(), layer.parameters(), rtol=0.0)
    np.testing.assert_array_equal(once[1], (2 * y + 1).sum([0, 2, 3]).numpy())


@native
def test_the_largest_of_each_window_and_nan_where_it_has_one() -> None:
    layer, x = made(1, 2), integers(1, 1, 9, 8)
    layer.conv.weight.set_value(np.sign(layer.conv.weight.numpy() + 0.5))  # 0 x inf is no number
    x[0, 0, 0, :3], x[0, 0, 7, 7] = np.nan, -np.inf
    conv = F.conv2d(paddle.to_tensor(x), layer.conv.weight, padding=1).numpy()
    around = np.pad(conv, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    expected = windows.max((4, 5)) + layer.conv.bias.numpy()[:, None, None]
    found = layer(paddle.to_tensor(x)).numpy()
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found).any()
    assert np.isinf(found).any()


@native
def test_nothing_is_kept_without_gradients_and_two_derivatives_are_refused() -> None:
    layer, x = made(3), paddle.to_tensor(integers(1, 3, 4, 4))
    with paddle.no_grad():
        assert layer(x).is_leaf
    assert_one_derivative(layer(x), layer.conv.weight)


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x = paddle.to_tensor(integers(2, 3, 6, 6))
    for part in ("conv", "pool"):
        layer = made(3)
        getattr(layer, part).register_forward_post_hook(lambda *_: None)
        layer(x)
    trained = x.clone()
    trained.stop_gradient = False
    made(3)(trained).sum().backward()
    assert trained.grad.shape == x.shape
    weight = made(3).conv.weight
    assert not stem.takes(x[:0], weight)
    assert not stem.takes(x, weight.astype("float64"))
    monkeypatch.setattr(F, "max_pool2d", lambda given, *_, **__: given)
    made(3)(x)
    assert called == []
