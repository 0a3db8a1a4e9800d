"""The native layer norm is the framework's, to rounding."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.ops.layer_norm import layer_norm
from tests.sot_paddle.ops.properties import (
    assert_one_derivative,
    assert_same_in_threads,
    walked_twice,
)

native = pytest.mark.native
EPSILON = 1e-5


def ours(x: paddle.Tensor, w: paddle.Tensor, b: paddle.Tensor) -> paddle.Tensor:
    return layer_norm(x, w, b, EPSILON)


def arrays(*shape: int, seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size).astype("float32") for size in (shape, shape[-1:], shape[-1:])]


def exact(x: np.ndarray, w: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    """Gradients of x, w and b in float64."""
    centred = x - x.mean(-1, keepdims=True)
    scale = 1.0 / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    n, gw = centred * scale, g * w
    along = (gw * n).mean(-1, keepdims=True)
    rows = tuple(range(x.ndim - 1))
    dx = scale * (gw - gw.mean(-1, keepdims=True) - n * along)
    return [dx, (g * n).sum(rows), g.sum(rows)]


@native
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 17), (40, 33), (9000, 20)])
def test_values_and_gradients(gradients, called, shape) -> None:
    given = arrays(*shape)
    found = gradients(ours, given)
    assert called == ["sot_layer_norm"]
    x, w, b = map(paddle.to_tensor, given)
    plain = F.layer_norm(x, shape[-1:], w, b, EPSILON).numpy()
    np.testing.assert_allclose(found[0], plain, rtol=2e-6, atol=2e-6)
    x, w, _ = (array.astype("float64") for array in given)
    g = np.random.default_rng(4).normal(size=shape).astype("float32")
    for ours_, want in zip(found[1:], exact(x, w, g.astype("float64")), strict=True):
        assert ours_.shape == want.shape
        np.testing.assert_allclose(ours_, want, rtol=2e-5, atol=2e-6 * np.abs(want).max() + 2e-5)


@native
@pytest.mark.parametrize(("scale", "shift", "off"), [(1e-3, 0.0, 2e-6), (1.0, 1e3, 5e-4)])
def test_small_rows_see_epsilon_and_large_means_keep_their_digits(scale, shift, off) -> None:
    x, w, b = arrays(50, 240)
    x = scale * x + np.float32(shift)
    exact_x = x.astype("float64")
    centred = exact_x - exact_x.mean(-1, keepdims=True)
    want = centred / np.sqrt(exact_x.var(-1, keepdims=True) + EPSILON) * w + b
    found = ours(*map(paddle.to_tensor, (x, w, b))).numpy()
    np.testing.assert_allclose(found, want, rtol=0, atol=off)


@native
def test_the_number_of_threads_changes_nothing(gradients, threads) -> None:
    assert_same_in_threads(threads, lambda: gradients(ours, arrays(700, 19)))


@native
def test_strided_views_repeated_backward_and_double_use(gradients, plainly) -> None:
    x, w, b = arrays(6, 6)

    def composed(x: paddle.Tensor, w: paddle.Tensor, b: paddle.Tensor) -> paddle.Tensor:
        return ours(x.t()[1::2], w, b) * ours(ours(x, w, b)[::2], w, b)

    found, plain = (f(composed, [x, w, b]) for f in (gradients, plainly(gradients)))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in (x, w, b)]
    walked_twice((composed(*tensors) ** 2).sum(), tensors, atol=1e-6)


@native
def test_nan_and_infinity_stay_in_their_rows(gradients, plainly) -> None:
    x, w, b = arrays(4, 9)
    x[1, 2], x[3, 0] = np.nan, np.inf
    found, plain = (f(ours, [x, w, b]) for f in (gradients, plainly(gradients)))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
    assert np.isnan(found[0]).all(1).tolist() == [False, True, False, True]


@native
def test_a_second_derivative_is_refused() -> None:
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in arrays(2, 3)]
    assert_one_derivative(ours(*tensors), tensors[0])


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x, w, b = map(paddle.to_tensor, arrays(3, 4))
    assert ours(x[:0], w, b).shape == [0, 4]
    assert ours(*(t.astype("float64") for t in (x, w, b))).dtype == paddle.float64
    with pytest.raises(ValueError, match="Given normalized_shape is"):
        ours(x[:, :3], w, b)
    monkeypatch.setattr(F, "layer_norm", lambda *given: "replaced")
    assert ours(x, w, b) == "replaced"
    assert called == []
