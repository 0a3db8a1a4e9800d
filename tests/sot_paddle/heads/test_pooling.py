"""Batch norm of tokens, half precision, power norms, dropout, the adapter pooler's models.

Values: align/port/head_rows.py.

Dims, all different: B 2, N 5, C 12, H 3, w 4, q 7, k 6.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.config import HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import fusion, pooling, power_norm
from sot_paddle.heads.adapter_pooler import AdapterClassifier, AdapterConfig, AdapterSpans
from sot_paddle.heads.factory import word_pooling

B, N, C, H, W, Q, K = 2, 5, 12, 3, 4, 7, 6


@pytest.fixture(autouse=True)
def _double(float64) -> None:
    """Everything here is built in float64."""


def tokens(seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(B, N, C))
    return noise + 0.3 * np.arange(C)


def batch_norm() -> pooling.TokenBatchNorm:
    layer = pooling.TokenBatchNorm(C)
    paddle.assign(paddle.linspace(0.5, 1.5, C), output=layer.weight)
    paddle.assign(paddle.linspace(-1.0, 1.0, C), output=layer.bias)
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
    sizes = {"head_num_heads": H, "wr_dim": W, "q_dim": Q, "k_dim": K, "qkv_dim": 2}
    layer = word_pooling(C, HeadConfig(pooling=kind, **sizes))
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


COLUMNS = 3


@pytest.mark.parametrize("num_sv", [2, None])
def test_svpn_warns_where_it_is_ill_posed(num_sv: int | None) -> None:
    with pytest.warns(UserWarning, match=f"num_iter=1 and num_sv={num_sv} is ill-posed"):
        power_norm.SvPN(COLUMNS, num_iter=1, num_sv=num_sv)
    power_norm.SvPN(COLUMNS, num_iter=2, num_sv=num_sv)  # a warning would be an error here


@pytest.mark.parametrize(
    "kind", [fusion.SumHead, fusion.ConcatHead, fusion.AllTokensHead, fusion.SumLossHead]
)
def test_dropout_acts_on_the_representation_alone(float64, kind) -> None:
    """The tap before dropout is whole."""
    cls, words = (paddle.normal(shape=shape) for shape in ([B, C], [B, N, C]))
    options = {"dim": C, "mask_padding": False}
    averages = word_pooling(C, HeadConfig(pooling="gap"))
    dropped, plain = (kind(averages, 2, **options, dropout=rate) for rate in (0.5, 0.0))
    plain.set_state_dict(dropped.state_dict())
    taps, whole = {}, {}
    dropped(Features(cls, words), taps)
    plain(Features(cls, words), whole)
    gap = {name: float((taps[name] - whole[name]).abs().max()) for name in whole}
    assert gap.pop("head.representation") == 0.0
    assert gap.pop("head.word_logits") > 1e-3
    assert gap in ({}, {"head.cls_logits": 0.0})


def test_a_width_of_zero_is_the_number_of_tokens() -> None:
    config = AdapterConfig(num_layers=3, hidden_size=7, seq_length=5)
    assert config.width == 5
    assert AdapterClassifier(config, 6).word_fc.weight.shape == [5 * 5 * 3, 6]


def test_stored_half_precision_is_computed_in_the_model_s() -> None:
    states = np.random.default_rng(1).normal(size=(2, 3, 5, 7)).astype("float16")
    sizes = AdapterConfig(num_layers=3, hidden_size=7, seq_length=5, adapter_dim=4)
    model = AdapterClassifier(sizes, 6)
    found = model(paddle.to_tensor(states))
    expected = model(paddle.to_tensor(states.astype("float64")))
    assert found.dtype == paddle.float64
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_parameters_are_those_of_the_original() -> None:
    model = AdapterClassifier(AdapterConfig(seq_length=219), 2)  # RTE, base
    pooler, scores = 768 * 219 + 219, 219 * 219 * 13 * 2 + 2
    assert (pooler, scores) == (168_411, 1_246_988)
    assert sum(p.size for p in model.parameters()) == pooler + scores == 1_415_399
    squad = AdapterSpans(AdapterConfig(seq_length=384))
    unused = 384 * 2 + 2
    expected = 768 * 384 + 384 + 384 * 13 * 2 + 2 + unused
    assert sum(p.size for p in squad.parameters()) == expected == 306_052
