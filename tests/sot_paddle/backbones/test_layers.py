"""Shared layers: norms in each precision; statistics and draws of models: tests/parity.

Dims, all different: B 3, N 5, C 12, H 6, W 7.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import ops
from sot_paddle.backbones import layers

B, N, C, H, W = 3, 5, 12, 6, 7


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
    with ops.native(False):
        fused = layer(paddle.to_tensor(x, dtype="float32")).numpy()
    assert calls == [1]
    exact = layer.to(dtype="float64")(paddle.to_tensor(x)).numpy()
    assert calls == [1]
    np.testing.assert_allclose(fused, exact, rtol=0, atol=1e-6)


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
