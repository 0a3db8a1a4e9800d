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


def images() -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(B, C, H, W))
    return noise * (1 + np.arange(C))[:, None, None] + 0.3 * np.arange(W)


def set_values(layer, **values) -> None:
    for name, value in values.items():
        parameter = getattr(layer, name)
        paddle.assign(paddle.to_tensor(value).astype(parameter.dtype), output=parameter)


def batch_norm() -> layers.BatchNorm2D:
    layer = layers.BatchNorm2D(C)
    set_values(layer, weight=np.linspace(0.5, 1.5, C), bias=np.linspace(-1.0, 1.0, C))
    return layer


def test_layer_norm_in_float32_uses_the_kernel_and_is_the_same_layer(monkeypatch) -> None:
    x = np.random.default_rng(0).normal(size=(B, N, C)) + 0.3 * np.arange(C)
    layer = layers.LayerNorm(C, epsilon=1e-5)
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
