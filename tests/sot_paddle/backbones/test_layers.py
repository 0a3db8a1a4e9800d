"""Shared layers against NumPy: norms, running statistics, attention, stochastic depth.

Dims, all different: B 3, N 5, C 12, h 4, H 6, W 7.
"""

from __future__ import annotations

import math

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


def normalised(x: np.ndarray, mean, var, epsilon: float) -> np.ndarray:
    def column(v):
        return np.asarray(v).reshape(1, C, 1, 1)

    scale = column(np.linspace(0.5, 1.5, C)) / np.sqrt(column(var) + epsilon)
    return (x - column(mean)) * scale + column(np.linspace(-1.0, 1.0, C))


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


def test_layer_norm_gradient(float64, check_gradient) -> None:
    check_gradient(layers.LayerNorm(C, epsilon=1e-6), tokens() * 0.1)


# ---------------------------------------------------------------- batch norm


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("options", [{}, {"epsilon": 1e-3, "momentum": 0.99}])
def test_batch_norm_over_three_steps(dtype: str, options: dict) -> None:
    """Outputs from the biased variance, running values with the unbiased one, as in torch."""
    layer = batch_norm(dtype, **options)
    momentum, epsilon = options.get("momentum", 0.9), options.get("epsilon", 1e-5)
    tolerance = {"float64": 1e-13, "float32": 3e-6}[dtype]
    mean, var = np.zeros(C), np.ones(C)
    for step in range(3):
        x = images(step)
        result = layer(paddle.to_tensor(x, dtype=dtype))
        assert str(result.dtype) == f"paddle.{dtype}"
        axes = (0, 2, 3)
        expected = normalised(x, x.mean(axes), x.var(axes), epsilon)
        np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=tolerance * 10)
        mean = momentum * mean + (1 - momentum) * x.mean(axes)
        var = momentum * var + (1 - momentum) * x.var(axes, ddof=1)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=tolerance)
    np.testing.assert_allclose(layer.running_var.numpy(), var, rtol=tolerance)
    biased = 1 - images(0).var((0, 2, 3)).sum() / images(0).var((0, 2, 3), ddof=1).sum()
    assert biased > 100 * tolerance, "the biased variance must be told apart"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batch_norm_in_eval_mode_uses_and_keeps_the_running_values(dtype: str) -> None:
    layer = batch_norm(dtype, epsilon=1e-3)
    mean, var = np.linspace(-2, 2, C), np.linspace(0.5, 3, C)
    set_values(layer, running_mean=mean, running_var=var)
    layer.eval()
    x = images()
    result = layer(paddle.to_tensor(x, dtype=dtype)).numpy()
    tolerance = 1e-13 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(result, normalised(x, mean, var, 1e-3), rtol=0, atol=tolerance)
    np.testing.assert_array_equal(layer.running_mean.numpy(), mean.astype(dtype))
    one = paddle.to_tensor(x[:1, :, :1, :1], dtype=dtype)
    assert np.isfinite(layer(one).numpy()).all()


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


def test_batch_norm_gradient_flows_through_the_statistics(float64, check_gradient) -> None:
    check_gradient(layers.BatchNorm2D(3), images(channels=3)[:2, :, :2, :3])


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


def test_batch_norm_state_names() -> None:
    names = {"weight", "bias", "running_mean", "running_var"}
    assert set(batch_norm().state_dict()) == names
    assert [name for name, _ in batch_norm().named_parameters()] == ["weight", "bias"]


# ---------------------------------------------------------------- convolution, stochastic depth


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_start_as_in_torch(bias: bool) -> None:
    layer = layers.conv(16, 40, 3, bias=bias)
    bound = 1 / math.sqrt(16 * 9)
    weight = layer.weight.numpy()
    assert np.abs(weight).max() <= bound
    np.testing.assert_allclose(weight.std(), bound / math.sqrt(3), rtol=0.03)
    assert (layer.bias is not None) == bias
    if bias:
        assert 0.5 * bound < np.abs(layer.bias.numpy()).max() <= bound


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
    with pytest.raises(ValueError, match=r"rate of DropPath must be in \[0, 1\), got 1.0"):
        layers.DropPath(1.0)


def test_drop_path_rates() -> None:
    np.testing.assert_allclose(layers.drop_path_rates(0.3, 4), [0.0, 0.1, 0.2, 0.3])
    assert layers.drop_path_rates(0.3, 1) == [0.0]


# ---------------------------------------------------------------- MLP and attention


def test_mlp_uses_the_exact_gelu(float64) -> None:
    layer, x = layers.Mlp(C, 20), tokens()
    set_values(layer.fc1, bias=np.linspace(-1, 1, 20))
    hidden = x @ layer.fc1.weight.numpy() * 30 + layer.fc1.bias.numpy()
    set_values(layer.fc1, weight=layer.fc1.weight.numpy() * 30)  # leave the linear range
    erf = np.vectorize(math.erf)
    expected = (0.5 * hidden * (1 + erf(hidden / math.sqrt(2)))) @ layer.fc2.weight.numpy()
    np.testing.assert_allclose(layer(paddle.to_tensor(x)).numpy(), expected, rtol=0, atol=1e-13)


def attention_oracle(layer: layers.Attention, x: np.ndarray, bias=None) -> np.ndarray:
    """One sample, head and token at a time."""
    d = C // HEADS
    qkv = x @ layer.qkv.weight.numpy()
    qkv = qkv if layer.qkv.bias is None else qkv + layer.qkv.bias.numpy()
    mixed = np.zeros_like(x)
    for b in range(len(x)):
        for head in range(HEADS):
            q, k, v = (qkv[b, :, p * C + head * d : p * C + (head + 1) * d] for p in range(3))
            for n in range(x.shape[1]):
                scores = k @ q[n] * layer.scale
                if bias is not None:
                    scores = scores + bias[head, b % bias.shape[1], n]
                weights = np.exp(scores - scores.max())
                mixed[b, n, head * d : (head + 1) * d] = weights / weights.sum() @ v
    return mixed @ layer.proj.weight.numpy() + layer.proj.bias.numpy()


def attention(**options) -> layers.Attention:
    layer = layers.Attention(C, HEADS, **options)
    generator = np.random.default_rng(2)
    for parameter in layer.parameters():
        value = generator.normal(size=parameter.shape) * 0.4
        paddle.assign(paddle.to_tensor(value), output=parameter)
    return layer


@pytest.mark.parametrize("options", [{}, {"qkv_bias": True}, {"qk_scale": 0.7}])
def test_attention_equals_a_loop(float64, options: dict) -> None:
    layer, x = attention(**options), tokens()
    assert layer.scale == options.get("qk_scale", (C // HEADS) ** -0.5)
    assert (layer.qkv.bias is not None) == options.get("qkv_bias", False)
    result = layer(paddle.to_tensor(x)).numpy()
    np.testing.assert_allclose(result, attention_oracle(layer, x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("groups", [1, 3])
def test_attention_bias_of_groups(float64, groups: int) -> None:
    layer, x = attention(), np.concatenate([tokens(0), tokens(1)])
    bias = np.random.default_rng(4).normal(size=(HEADS, groups, N, N))
    result = layer(paddle.to_tensor(x), paddle.to_tensor(bias)).numpy()
    np.testing.assert_allclose(result, attention_oracle(layer, x, bias), rtol=0, atol=1e-13)


def test_attention_gradient(float64, check_gradient) -> None:
    bias = paddle.to_tensor(np.random.default_rng(4).normal(size=(HEADS, 1, N, N)))
    check_gradient(lambda x: attention()(x, bias), tokens()[:1])


def test_dropout_of_attention_and_mlp_only_acts_in_training_mode() -> None:
    x = paddle.to_tensor(tokens(), dtype="float32")
    for options in ({"attn_drop": 0.5}, {"proj_drop": 0.5}):
        layer = layers.Attention(C, HEADS, **options)
        assert (layer(x).numpy() != layer(x).numpy()).any()
        layer.eval()
        np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())
    mlp = layers.Mlp(C, 20, drop=0.5)
    assert (mlp(x).numpy() == 0).mean() > 0.3
