"""Native attention is what the framework's operators compute one after the other, to rounding."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import _C_ops
from paddle.nn import functional as F

from sot_paddle.ops.attention import attends_natively, attention
from tests.sot_paddle.ops.properties import (
    assert_one_derivative,
    assert_same_in_threads,
    walked_twice,
)

native = pytest.mark.native
HEADS, WIDTH, SCALE = 3, 5, 0.6


def parts(batch: int, tokens: int, seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(batch, tokens, HEADS * WIDTH)).astype("float32") for _ in range(3)]


def plain(q, k, v, bias=None, p=0.0, heads_first=False) -> paddle.Tensor:
    """The formula by Paddle's operators."""
    batch, tokens, dim = q.shape
    axes = [2, 0, 1, 3] if heads_first else [0, 2, 1, 3]
    q, k, v = (x.reshape([batch, tokens, HEADS, -1]).transpose(axes) for x in (q, k, v))
    scores = paddle.matmul(q * SCALE, k, transpose_y=True)
    if bias is not None and heads_first:
        windows = bias.shape[1]
        grouped = scores.reshape([HEADS, -1, windows, tokens, tokens]) + bias.unsqueeze(1)
        scores = grouped.reshape(scores.shape)
    elif bias is not None:
        scores = scores + bias
    out = paddle.matmul(F.dropout(F.softmax(scores), p), v)
    back = [1, 2, 0, 3] if heads_first else [0, 2, 1, 3]
    return out.transpose(back).reshape([batch, tokens, dim])


def ours(q, k, v, bias=None, p=0.0, heads_first=False) -> paddle.Tensor:
    options = {"scale": SCALE, "bias": bias, "p": p, "heads_first": heads_first}
    return attention([q, k, v], HEADS, **options)


def compare(gradients, arrays, *options) -> None:
    found = gradients(lambda *x: ours(*x, *options), arrays)
    after = paddle.rand([3]).numpy()
    want = gradients(lambda *x: plain(*x, *options), arrays)
    np.testing.assert_array_equal(paddle.rand([3]).numpy(), after)
    scale = max(np.abs(array).max() for array in want)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6 * scale)


@native
@pytest.mark.parametrize("p", [0.0, 0.2])
@pytest.mark.parametrize("tokens", [1, 2, 31, 300])  # 300: blocks of 218 queries
def test_values_and_gradients(gradients, called, tokens, p) -> None:
    compare(gradients, parts(2, tokens), None, p)
    assert called == ["sot_attention"]


BIASES = {
    "padding": ((4, 1, 1, 9), False),
    "all": ((4, HEADS, 9, 9), False),
    "causal": ((1, 1, 9, 9), False),
    "windows": ((HEADS, 2, 9, 9), True),
    "of samples": ((1, 4, 1, 9), True),
}


@native
@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_shared_as_the_framework_would(gradients, name) -> None:
    shape, heads_first = BIASES[name]
    bias = paddle.to_tensor(np.random.default_rng(5).normal(size=shape).astype("float32"))
    bias = paddle.where(bias > 1.5, paddle.full([], -1e4), bias)
    assert attends_natively([paddle.ones([4, 9, 15])] * 3, bias)
    for p in (0.0, 0.2):
        compare(gradients, parts(4, 9), bias, p, heads_first)


@native
def test_one_tensor_with_the_three_side_by_side_is_the_same(gradients) -> None:
    separate = parts(2, 7)
    found = gradients(lambda *x: ours(*x, None, 0.3, True), separate)
    options = {"scale": SCALE, "p": 0.3, "heads_first": True}
    joint = np.concatenate(separate, axis=-1)
    both = gradients(lambda x: attention([x], HEADS, **options), [joint])
    np.testing.assert_array_equal(both[0], found[0])
    np.testing.assert_array_equal(both[1], np.concatenate(found[1:], axis=-1))


@native
def test_the_number_of_threads_changes_nothing(gradients, threads) -> None:
    given = (lambda *x: ours(*x, None, 0.2), parts(3, 40))
    assert_same_in_threads(threads, lambda: gradients(*given))


@native
def test_scores_far_apart_and_not_numbers(gradients) -> None:
    q, k, v = parts(2, 6)
    compare(gradients, [40.0 * q, 40.0 * k, v])
    hidden = np.zeros((2, 1, 1, 6), "float32")
    hidden[0, ..., 2:] = -np.inf
    compare(gradients, [q, k, v], paddle.to_tensor(hidden))
    q[1, 3, 0] = np.nan
    tensors = [paddle.to_tensor(array) for array in (q, k, v)]
    found, want = ours(*tensors).numpy(), plain(*tensors).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    assert np.isnan(found).any(-1).sum() == 1


@native
def test_strided_views_repeated_backward_and_double_use(gradients) -> None:
    def composed(attend):
        def function(x: paddle.Tensor) -> paddle.Tensor:
            view = x.transpose([1, 0, 2])[::2]  # (3, 4, 15)
            return attend(view, attend(view, view, view), view)

        return function

    given = [np.random.default_rng(3).normal(size=(4, 6, 15)).astype("float32")]
    found, want = gradients(composed(ours), given), gradients(composed(plain), given)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    x = paddle.to_tensor(given[0], stop_gradient=False)
    walked_twice(ours(x, x, x, None, 0.3).sum(), [x])


@native
def test_a_second_derivative_is_refused() -> None:
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in parts(1, 3)]
    assert_one_derivative(ours(*tensors), tensors[0])


def test_what_the_operator_does_not_take(monkeypatch) -> None:
    x = paddle.ones([2, 4, 15])
    bias = paddle.zeros([2, 1, 1, 4])
    assert not attends_natively([x.astype("float64")] * 3, None)
    assert not attends_natively([x[:0]] * 3, None)
    assert not attends_natively([x, x[:, :2], x[:, :2]], None)
    assert not attends_natively([x] * 3, bias.astype("bool"))
    assert not attends_natively([x] * 3, bias[..., :1])
    bias.stop_gradient = False
    assert not attends_natively([x] * 3, bias)
    for owner, name in ((F, "softmax"), (F, "dropout"), (_C_ops, "dropout")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *given: None)
            assert not attends_natively([x] * 3, None)


@native
def test_a_masked_token_has_no_weight_at_all() -> None:
    """Exactly 0, as in the framework; a subnormal weight makes every product with it slow."""
    given = [paddle.to_tensor(array, stop_gradient=False) for array in parts(2, 7)]
    bias = np.zeros((2, 1, 1, 7), "float32")
    bias[:, :, :, 4:] = -1e4
    ours(*given, paddle.to_tensor(bias)).sum().backward()
    for tensor in given[1:]:  # keys and values
        assert np.abs(tensor.grad.numpy()[:, :4]).min() > 0
        assert (tensor.grad.numpy()[:, 4:] == 0).all()
