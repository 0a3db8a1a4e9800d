"""The adapter pooler's two models: sizes, start, half precision; values: cases adapter_*.

Dims: B 2, L 3, T 5, F 7, A 4, K 6.
"""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest

from sot_paddle.heads.adapter_pooler import (
    AdapterClassifier,
    AdapterConfig,
    AdapterSpans,
)

B, L, T, F, A, K = 2, 3, 5, 7, 4, 6
SIZES = AdapterConfig(num_layers=L, hidden_size=F, seq_length=T, adapter_dim=A)


def states(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(B, L, T, F)).astype(dtype)


def test_a_width_of_zero_is_the_number_of_tokens() -> None:
    config = AdapterConfig(num_layers=L, hidden_size=F, seq_length=T)
    assert config.width == T
    assert AdapterClassifier(config, K).word_fc.weight.shape == [T * T * L, K]


@pytest.mark.usefixtures("float64")
def test_stored_half_precision_is_computed_in_the_model_s() -> None:
    given, model = states("float16"), AdapterClassifier(SIZES, K)
    found = model(paddle.to_tensor(given))
    expected = model(paddle.to_tensor(given.astype("float64")))
    assert found.dtype == paddle.float64
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_the_start_is_torch_s() -> None:
    wide = AdapterConfig(num_layers=3, hidden_size=900, seq_length=40, adapter_dim=30)
    model = AdapterClassifier(wide, 5)
    for layer, fan_in in ((model.pooling.proj, 900), (model.word_fc, 40 * 30 * 3)):
        for value in (layer.weight.numpy(), layer.bias.numpy()):
            assert np.abs(value).max() <= 1 / math.sqrt(fan_in)
        deviation = layer.weight.numpy().std() * math.sqrt(3 * fan_in)
        assert deviation == pytest.approx(1.0, abs=0.05)
        assert layer.bias.numpy().any()


def test_parameters_are_those_of_the_original() -> None:
    model = AdapterClassifier(AdapterConfig(seq_length=219), 2)  # RTE, base
    pooler, scores = 768 * 219 + 219, 219 * 219 * 13 * 2 + 2
    assert (pooler, scores) == (168_411, 1_246_988)
    assert sum(p.size for p in model.parameters()) == pooler + scores == 1_415_399
    squad = AdapterSpans(AdapterConfig(seq_length=384))
    unused = 384 * 2 + 2
    expected = 768 * 384 + 384 + 384 * 13 * 2 + 2 + unused
    assert sum(p.size for p in squad.parameters()) == expected == 306_052
