"""The adapter pooler and its two models against NumPy. Dims: B 2, L 3, T 5, F 7, A 4, K 6."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import paddle
import pytest

from sot_paddle.complexity import count_parameters
from sot_paddle.heads.adapter_pooler import (
    AdapterClassifier,
    AdapterConfig,
    AdapterPooler,
    AdapterSpans,
)

B, L, T, F, A, K = 2, 3, 5, 7, 4, 6
SIZES = AdapterConfig(num_layers=L, hidden_size=F, seq_length=T, adapter_dim=A)


def states(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(B, L, T, F)).astype(dtype)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def pooled_by_hand(pooler: AdapterPooler, given: np.ndarray) -> np.ndarray:
    """z[b, t, a, l] by loops over tokens and layers."""
    weight, bias = pooler.proj.weight.numpy(), pooler.proj.bias.numpy()
    found = np.empty((B, T, A, L))
    for t in range(T):
        for layer in range(L):
            found[:, t, :, layer] = gelu(given[:, layer, t] @ weight + bias)
    return found


@pytest.mark.usefixtures("float64")
def test_the_pooler_maps_every_state_alone_and_puts_the_layers_last() -> None:
    pooler, given = AdapterPooler(F, A), states()
    found = pooler(paddle.to_tensor(given)).numpy()
    np.testing.assert_allclose(found, pooled_by_hand(pooler, given), rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_classifier_reads_token_then_width_then_layer() -> None:
    model, given = AdapterClassifier(SIZES, K), states()
    pooled = pooled_by_hand(model.pooling, given)
    weight = model.word_fc.weight.numpy().reshape(T, A, L, K)
    expected = np.einsum("btal,talk->bk", pooled, weight) + model.word_fc.bias.numpy()
    taps: dict = {}
    logits = model(paddle.to_tensor(given), taps).numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(taps["logits"].numpy(), logits)
    np.testing.assert_allclose(taps["head.pooled"].numpy(), pooled, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_spans_of_a_token_come_from_its_own_states() -> None:
    model, given = AdapterSpans(SIZES), states()
    pooled = pooled_by_hand(model.pooling, given)
    weight = model.word_fc.weight.numpy().reshape(A, L, 2)
    expected = np.einsum("btal,alk->btk", pooled, weight) + model.word_fc.bias.numpy()
    start, end = model(paddle.to_tensor(given))
    np.testing.assert_allclose(start.numpy(), expected[..., 0], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(end.numpy(), expected[..., 1], rtol=1e-12, atol=1e-13)
    (start.sum() + end.sum()).backward()
    assert model.unused_fc.weight.grad is None  # QUIRK
    assert model.word_fc.weight.grad is not None


@pytest.mark.usefixtures("float64")
def test_gradients(check_gradient) -> None:
    check_gradient(AdapterClassifier(SIZES, K), states())
    spans = AdapterSpans(SIZES)
    check_gradient(lambda given: paddle.stack(spans(given)), states())


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
    assert count_parameters(model).trainable == pooler + scores == 1_415_399
    squad = AdapterSpans(AdapterConfig(seq_length=384))
    unused = 384 * 2 + 2
    expected = 768 * 384 + 384 + 384 * 13 * 2 + 2 + unused
    assert count_parameters(squad).trainable == expected == 306_052


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"adapter_dim": -1}, "adapter_dim must be at least 0, got -1"),
    ],
)
def test_dimensions_that_cannot_be(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        AdapterConfig(**changes)


def test_states_of_other_dimensions_are_refused() -> None:
    model = AdapterClassifier(SIZES, K)
    with pytest.raises(ValueError, match=r"shape \(B, 3, 5, 7\), got \(2, 3, 4, 7\)"):
        model(paddle.to_tensor(states()[:, :, :4]))
    with pytest.raises(ValueError, match=r"got \(3, 5, 7\)"):
        model(paddle.to_tensor(states()[0]))


def test_the_page_states_what_is_counted() -> None:
    """Every row of the table of parameters, by building the models."""
    page = (Path(__file__).parents[3] / "docs" / "bertvision.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d) \| ([\d,]+) \| ([\d,]+) \|$", page, re.M)
    assert len(rows) == 9
    for task, tokens, outputs, *stated in rows:
        for (layers, width), count in zip(((13, 768), (25, 1024)), stated, strict=True):
            sizes = AdapterConfig(num_layers=layers, hidden_size=width, seq_length=int(tokens))
            squad = task == "SQuAD"
            model = AdapterSpans(sizes) if squad else AdapterClassifier(sizes, int(outputs))
            assert f"{count_parameters(model).trainable:,}" == count, task
