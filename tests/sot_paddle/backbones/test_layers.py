"""Shared layers: norms against NumPy, running statistics, stochastic depth, dropout.

Dims, all different: B 3, N 5, C 12, h 4, H 6, W 7.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.backbones import layers
from sot_paddle.heads.pooling import TokenBatchNorm

B, N, C, HEADS, H, W = 3, 5, 12, 4, 6, 7


def images(seed: int = 0, channels: int = C) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(B, channels, H, W))
    return noise * (1 + np.arange(channels))[:, None, None] + 0.3 * np.arange(W)


def tokens(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, N, C)) + 0.3 * np.arange(C)


def set_values(layer, **values) -> None:
    for name, value in values.items():
        parameter = getattr(layer, name)
        paddle.assign(paddle.to_tensor(value).astype(parameter.dtype), output=parameter)


def batch_norm(dtype: str = "float32", **options) -> layers.BatchNorm2D:
    layer = layers.BatchNorm2D(C, **options).to(dtype=dtype)
    set_values(layer, weight=np.linspace(0.5, 1.5, C), bias=np.linspace(-1.0, 1.0, C))
    return layer


# ---------------------------------------------------------------- layer norm


@pytest.mark.parametrize("std", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
def test_layer_norm_in_float64_is_exact_for_small_rows_too(float64, std, epsilon) -> None:
    """The kernel's float32 epsilon would be off by 1.2e-9 at 0.01 and 1e-5."""
    x, layer = tokens() * std, layers.LayerNorm(C, epsilon=epsilon)
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    result = layer(paddle.to_tensor(x)).numpy()
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-14)


def test_layer_norm_in_float32_uses_the_kernel_and_is_the_same_layer(monkeypatch) -> None:
    x, layer = tokens(), layers.LayerNorm(C, epsilon=1e-5)
    set_values(layer, weight=np.linspace(0.5, 1.5, C), bias=np.linspace(-1, 1, C))
    calls = []
    kernel = layers.F.layer_norm
    monkeypatch.setattr(layers.F, "layer_norm", lambda *a: calls.append(1) or kernel(*a))
    fused = layer(paddle.to_tensor(x, dtype="float32")).numpy()
    assert calls == [1]
    exact = layer.to(dtype="float64")(paddle.to_tensor(x)).numpy()
    assert calls == [1]
    np.testing.assert_allclose(fused, exact, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- batch norm


def test_batch_norm_kernel_and_formula_agree_in_value_and_gradient() -> None:
    """The formula serves synchronised statistics: with one process they are the same."""
    fused, formula = batch_norm(), batch_norm()
    formula.sum_across_processes = lambda total: total * 1.0
    found = []
    for layer in (fused, formula):
        x = paddle.to_tensor(images(), dtype="float32", stop_gradient=False)
        (layer(x) * paddle.to_tensor(images(1), dtype="float32")).sum().backward()
        found.append([x.grad, layer.weight.grad, layer.running_mean, layer.running_var])
    for ours, other in zip(*found, strict=True):
        scale = np.abs(other.numpy()).max()
        np.testing.assert_allclose(ours.numpy() / scale, other.numpy() / scale, rtol=0, atol=2e-6)


def test_batch_norm_synchronises_through_the_hook_of_the_token_batch_norm() -> None:
    layer, doubled = batch_norm(), batch_norm()
    assert isinstance(layer, TokenBatchNorm)
    x = paddle.to_tensor(images(), dtype="float32")
    doubled.sum_across_processes = lambda total: total * 2  # two processes with the same batch
    np.testing.assert_allclose(doubled(x).numpy(), layer(x).numpy(), rtol=0, atol=1e-5)
    count = B * H * W
    ratio = (count / (count - 1)) / (2 * count / (2 * count - 1))
    alone, both = layer.running_var.numpy() - 0.9, doubled.running_var.numpy() - 0.9
    np.testing.assert_allclose(alone / both, ratio, rtol=1e-4)


def test_batch_norm_computes_half_precision_in_float32(amp_switches) -> None:
    layer = batch_norm()
    x = paddle.to_tensor(images() + 300.0, dtype="float32").astype("bfloat16")
    result = layer(x)
    assert result.dtype == paddle.bfloat16
    assert amp_switches == [{"enable": False}]
    exact = batch_norm()(x.astype("float32"))
    np.testing.assert_array_equal(
        result.astype("float32"), exact.astype("bfloat16").astype("float32")
    )


def test_batch_norm_refuses_one_value_for_each_channel_in_training_mode() -> None:
    with pytest.raises(
        ValueError, match=r"more than one value for each channel, got .*1, 12, 1, 1"
    ):
        batch_norm()(paddle.ones([1, C, 1, 1]))


# ---------------------------------------------------------------- stochastic depth


def test_drop_path_keeps_the_expectation_sample_by_sample() -> None:
    layer, x = layers.DropPath(0.3), paddle.ones([4000, 2, 3])
    result = layer(x).numpy()
    assert {0.0, np.float32(1 / 0.7)} == set(np.unique(result))
    assert (result == result[:, :1, :1]).all(), "a sample is dropped as a whole"
    np.testing.assert_allclose(result.mean(), 1.0, atol=0.03)


def test_drop_path_is_deterministic_given_the_seed_and_absent_in_eval_mode() -> None:
    layer, x = layers.DropPath(0.5), paddle.ones([64, 2])
    paddle.seed(3)
    first = layer(x).numpy()
    assert (layer(x).numpy() != first).any()
    paddle.seed(3)
    np.testing.assert_array_equal(layer(x).numpy(), first)
    layer.eval()
    assert layer(x) is x
    assert layers.DropPath(0.0)(x) is x


def test_drop_path_rates() -> None:
    np.testing.assert_allclose(layers.drop_path_rates(0.3, 4), [0.0, 0.1, 0.2, 0.3])
    assert layers.drop_path_rates(0.3, 1) == [0.0]


# ---------------------------------------------------------------- MLP and attention


def test_dropout_of_attention_and_mlp_only_acts_in_training_mode() -> None:
    x = paddle.to_tensor(tokens(), dtype="float32")
    for options in ({"attn_drop": 0.5}, {"proj_drop": 0.5}):
        layer = layers.Attention(C, HEADS, **options)
        assert (layer(x).numpy() != layer(x).numpy()).any()
        layer.eval()
        np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())
    mlp = layers.Mlp(C, 20, drop=0.5)
    assert (mlp(x).numpy() == 0).mean() > 0.3
