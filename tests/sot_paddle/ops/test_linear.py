"""A linear layer with a native bias is the framework's."""

from __future__ import annotations

import importlib

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.ops import linear as linear_module
from sot_paddle.ops.linear import linear
from tests.sot_paddle.ops.properties import (
    assert_one_derivative,
    assert_same_in_threads,
    walked_twice,
)

native = pytest.mark.native


def arrays(*rows: int, width: int = 5, out: int = 7) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = ((*rows, width), (width, out), (out,))
    return [rng.normal(size=size).astype("float32") for size in shapes]


@native
@pytest.mark.parametrize("rows", [(), (1,), (3, 5), (9001,)])
def test_values_and_gradients(gradients, plainly, called, rows) -> None:
    given = arrays(*rows)
    found = gradients(linear, given)
    assert called == ["sot_add_bias"]
    x, w, b, g = *given, np.random.default_rng(4).normal(size=found[0].shape).astype("float32")
    np.testing.assert_allclose(found[0], x.astype("float64") @ w + b, rtol=1e-5, atol=1e-5)
    sums = g.reshape(-1, g.shape[-1]).astype("float64").sum(0)
    np.testing.assert_allclose(found[3], sums, rtol=1e-5, atol=1e-6 * np.abs(g).sum(0).max())
    for one, other in zip(found[:3], plainly(gradients)(linear, given), strict=False):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)


@native
@pytest.mark.parametrize("place", ["paddle.nn.functional.common", linear_module._HANDS_ON])
def test_what_paddlenlp_puts_in_place_of_the_framework_s_changes_nothing(
    called, monkeypatch, place
) -> None:
    found = importlib.import_module(place)
    plain = getattr(found, "fp8_linear", None) or found.linear
    monkeypatch.setattr(F, "linear", plain)
    linear(*map(paddle.to_tensor, arrays(3)))
    assert called == ["sot_add_bias"]


@native
def test_the_number_of_threads_changes_no_sum(gradients, threads) -> None:
    given = arrays(700)
    assert_same_in_threads(threads, lambda: gradients(linear, given)[3:])


@native
def test_strided_views_repeated_backward_double_use_and_nan(gradients, plainly) -> None:
    x, w, b = arrays(6, width=6, out=6)
    x[2, 3] = np.inf

    def composed(x: paddle.Tensor, w: paddle.Tensor, b: paddle.Tensor) -> paddle.Tensor:
        return linear(x.t()[1::2], w, b) * linear(linear(x[::2], w, b), w.t(), b[:])

    found, plain = (f(composed, [x, w, b]) for f in (gradients, plainly(gradients)))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in (x[:2], w, b)]
    y = linear(*tensors)
    once = walked_twice((y * y + y).sum(), tensors)  # the gradient of y has two parts
    want = 2.0 * y.numpy() + 1.0
    np.testing.assert_allclose(once[2], want.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(once[0], want @ w.T, rtol=1e-5, atol=1e-5)


@native
def test_a_frozen_layer_gives_its_input_a_gradient_and_its_weights_none() -> None:
    x, w, b = map(paddle.to_tensor, arrays(3))
    x.stop_gradient = False
    linear(x, w, b).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(w.numpy().sum(1), (3, 1)), rtol=1e-5)
    assert w.grad is None
    assert b.grad is None


@native
def test_a_second_derivative_is_refused() -> None:
    x, w, b = (paddle.to_tensor(array, stop_gradient=False) for array in arrays(3))
    assert_one_derivative(linear(x, w, b), x)


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x, w, b = map(paddle.to_tensor, arrays(3))
    np.testing.assert_array_equal(linear(x, w, None).numpy(), F.linear(x, w).numpy())
    assert linear(x[:0], w, b).shape == [0, 7]
    assert linear(*(t.astype("float64") for t in (x, w, b))).dtype == paddle.float64
    monkeypatch.setattr(F, "linear", lambda *given: "replaced")
    assert linear(x, w, b) == "replaced"
    assert called == []
