"""Native batch normalisation of images is the formula's."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.backbones.layers import BatchNorm2D
from sot_paddle.ops import image_norm
from tests.sot_paddle.ops.image_steps import close, drawn, redrawn, step, views_twice
from tests.sot_paddle.ops.properties import assert_one_derivative

native = pytest.mark.native
SHAPES = [(2, 3, 6, 8), (2, 1, 1, 1), (1, 17, 3, 5), (3, 2, 66, 70)]


def made(channels: int, *, train: bool = True, dtype: str = "float32") -> BatchNorm2D:
    return redrawn(BatchNorm2D(channels), train=train, dtype=dtype)


@native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("train", [True, False])
def test_values_and_gradients(called, shape, train) -> None:
    x = drawn(*shape)
    found = step(made(shape[1], train=train), x)
    assert called == ["sot_image_norm"]
    close(found, step(made(shape[1], train=train, dtype="float64"), x.astype("float64")), 5e-6)


@native
def test_threads_views_double_use_and_repeated_backward(plainly, threads) -> None:
    found = views_twice(made(4))
    close(found, plainly(views_twice)(made(4)), 3e-5)
    threads(3)
    for name, value in views_twice(made(4)).items():
        np.testing.assert_array_equal(value, found[name], err_msg=name)


@native
def test_an_evaluation_keeps_the_running_values_it_had() -> None:
    layer, x = made(3, train=False), paddle.to_tensor(drawn(2, 3, 4, 4), stop_gradient=False)
    y = layer(x)
    layer.running_var.set_value(layer.running_var * 100.0)
    y.sum().backward()
    scale = layer.weight / paddle.sqrt(layer.running_var / 100.0 + layer.epsilon)
    np.testing.assert_allclose(x.grad.numpy()[0, :, 0, 0], scale.numpy(), rtol=1e-5)


@native
def test_nothing_is_kept_without_gradients_and_two_derivatives_are_refused() -> None:
    layer, x = made(3), paddle.to_tensor(drawn(2, 3, 4, 4), stop_gradient=False)
    with paddle.no_grad():
        assert layer(x).is_leaf
    assert_one_derivative(layer(x), x)


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x = paddle.to_tensor(drawn(2, 3, 4, 4))
    made(3, dtype="float64")(x.astype("float64"))
    shared = made(3)
    shared.sum_across_processes = lambda total: total
    shared(x)
    assert not image_norm.takes(x[:0])
    monkeypatch.setattr(F, "batch_norm", lambda given, *_, **__: given)
    made(3)(x)
    assert called == []
