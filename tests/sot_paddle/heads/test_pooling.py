"""The batch normalisation of tokens, and half precision; values: align/port/head_rows.py.

Dims, all different: B 2, N 5, C 12, H 3, w 4, q 7, k 6.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.heads import pooling, power_norm

B, N, C, H, W, Q, K = 2, 5, 12, 3, 4, 7, 6


@pytest.fixture(autouse=True)
def _double(float64) -> None:
    """Everything here is built in float64."""


def tokens(seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(B, N, C))
    return noise + 0.3 * np.arange(C)


def batch_norm(channels: int = C, **options) -> pooling.TokenBatchNorm:
    layer = pooling.TokenBatchNorm(channels, **options)
    paddle.assign(paddle.linspace(0.5, 1.5, channels), output=layer.weight)
    paddle.assign(paddle.linspace(-1.0, 1.0, channels), output=layer.bias)
    return layer


def test_batch_norm_refuses_a_single_token_in_training_mode_only() -> None:
    layer, one = batch_norm(), paddle.to_tensor(tokens()[:1, :1])
    with pytest.raises(ValueError, match=r"more than one value for each channel, got .*1, 1, 12"):
        layer(one)
    layer.eval()
    assert np.isfinite(layer(one).numpy()).all()


def test_batch_norm_state_and_synchronisation_hook() -> None:
    layer = batch_norm()
    assert sorted(layer.state_dict()) == ["bias", "running_mean", "running_var", "weight"]
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    halves = np.split(tokens(), 2)  # two processes, each with one sample
    sums = []
    layer.sum_across_processes = lambda total: sums.append(total.numpy()) or total
    layer(paddle.to_tensor(halves[0]))
    assert [part.shape for part in sums] == [(), (C,), (C,)]
    assert sums[0] == N
    np.testing.assert_allclose(sums[1], halves[0].sum(axis=(0, 1)), rtol=1e-12)


def test_batch_norm_computes_half_precision_in_float32(amp_switches) -> None:
    layer = batch_norm().to(dtype="float32")
    half = paddle.to_tensor(tokens()).astype("bfloat16")
    result = layer(half)
    assert amp_switches == [{"enable": False}]
    assert result.dtype == paddle.float32
    other = batch_norm().to(dtype="float32")
    np.testing.assert_array_equal(result.numpy(), other(half.astype("float32")).numpy())
    assert layer.running_mean.dtype == paddle.float32


@pytest.mark.parametrize("kind", ["mgcrp", "mgcrp_qk", "gcp"])
def test_half_precision_projections_give_float32_representations(kind: str) -> None:
    """What AMP does on a GPU: linear layers return bfloat16; everything after is float32."""
    paddle.set_default_dtype("float32")
    layer = {
        "mgcrp": lambda: pooling.MultiHeadCrossCovariance(
            C, num_heads=H, wr_dim=W, norm=power_norm.SvPN(W)
        ),
        "mgcrp_qk": lambda: pooling.QKCrossCovariance(C, q_dim=Q, k_dim=K, norm=power_norm.SvPN(Q)),
        "gcp": lambda: pooling.CovariancePooling(C, reduced_dim=W, norm=power_norm.MatrixSqrt()),
    }[kind]()
    for sublayer in layer.sublayers():
        if isinstance(sublayer, nn.Linear):
            sublayer.register_forward_post_hook(lambda _, inputs, out: out.astype("bfloat16"))
    taps = {}
    result = layer(paddle.to_tensor(tokens(), dtype="float32"), None, taps)
    assert result.dtype == paddle.float32
    assert taps["head.covariance"].dtype == paddle.float32
    assert taps["head.power_norm"].dtype == paddle.float32
    result.sum().backward()
    assert all(p.grad.dtype == paddle.float32 for p in layer.parameters())
