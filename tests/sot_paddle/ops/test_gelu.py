"""The native GELU is the framework's, to rounding, and more exact in its lower tail."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.ops import dispatch
from sot_paddle.ops.gelu import gelu
from tests.sot_paddle.ops.properties import assert_one_derivative, walked_twice

native = pytest.mark.native
ERFC = np.vectorize(math.erfc)


def exact(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and derivative in float64."""
    cumulative = 0.5 * ERFC(-x / math.sqrt(2.0))
    return x * cumulative, cumulative + x * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def value_and_gradient(function, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tensor = paddle.to_tensor(x, stop_gradient=False)
    y = function(tensor)
    y.backward(paddle.to_tensor(g))
    return y.numpy(), tensor.grad.numpy()


@native
def test_value_and_gradient_are_within_rounding_of_the_exact_ones(called) -> None:
    x = np.linspace(-9.0, 9.0, 40001).astype("float32")  # more than one block, an odd number
    y, dx = value_and_gradient(gelu, x, np.full_like(x, 1.5))
    assert called == ["sot_gelu"]
    want, slope = exact(x.astype("float64"))
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=0)
    np.testing.assert_allclose(dx, 1.5 * slope, rtol=2e-6, atol=2e-7)


@native
@pytest.mark.parametrize("shape", [(), (1,), (0, 5), (3, 5, 7), (2, 16385)])
def test_shapes_stay(shape) -> None:
    rng = np.random.default_rng(3)
    x, g = (rng.normal(size=shape).astype("float32") for _ in range(2))
    found, plain = value_and_gradient(gelu, x, g), value_and_gradient(F.gelu, x, g)
    for ours, theirs in zip(found, plain, strict=True):
        assert ours.shape == theirs.shape == shape
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=5e-7)


@native
def test_far_values_infinity_and_nan_are_those_of_the_framework() -> None:
    x = [13.0, 1e4, -1e4, 1e38, -1e38, np.inf, -np.inf, np.nan, 0.0, -0.0]
    given = np.array(x, "float32"), np.ones(len(x), "float32")
    found, plain = value_and_gradient(gelu, *given), value_and_gradient(F.gelu, *given)
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-35)


@native
def test_strided_views_repeated_backward_and_double_use() -> None:
    rng = np.random.default_rng(5)
    x = paddle.to_tensor(rng.normal(size=(6, 10)).astype("float32"), stop_gradient=False)

    def composed(function) -> paddle.Tensor:
        view = x.t()[1::3]  # (3, 6)
        return function(function(view)) * function(view.t()).t()

    (once,) = walked_twice(composed(gelu).sum(), [x])
    x.clear_gradient()
    composed(F.gelu).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), once, rtol=2e-6, atol=1e-6)


@native
def test_a_second_derivative_is_refused() -> None:
    x = paddle.ones([3])
    x.stop_gradient = False
    assert_one_derivative(gelu(x), x)


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x = paddle.to_tensor([0.5, -2.0], dtype="float64")
    np.testing.assert_array_equal(gelu(x).numpy(), F.gelu(x).numpy())
    monkeypatch.setattr(dispatch.paddle, "is_autocast_enabled", lambda: True)
    gelu(x.astype("float32"))
    monkeypatch.undo()
    monkeypatch.setattr(dispatch.build, "why_not", lambda: "no compiler")
    np.testing.assert_array_equal(gelu(x.astype("float32")), F.gelu(x.astype("float32")))
    monkeypatch.undo()
    assert called == []


def test_a_replaced_function_of_the_framework_is_called(called, monkeypatch) -> None:
    monkeypatch.setattr(F, "gelu", F.relu)
    assert gelu(paddle.to_tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    assert called == []


def test_a_traced_graph_holds_the_operator_of_the_framework(called) -> None:
    spec = [paddle.static.InputSpec([None, 3], "float32")]
    graph = paddle.jit.to_static(gelu, input_spec=spec, full_graph=True)
    program = str(graph.concrete_program.main_program)
    assert "gelu" in program
    assert "sot_gelu" not in program
    assert called == []
