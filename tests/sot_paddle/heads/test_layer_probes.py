"""Probes of each layer alone. Dims: B 2, L 3, T 5, F 7, K 4."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.heads.adapter_pooler import AdapterConfig
from sot_paddle.heads.layer_probes import LayerClassifiers, LayerSpans
from sot_paddle.tasks.losses import classification_loss, probe_loss, span_loss

B, L, T, F, K = 2, 3, 5, 7, 4
SIZES = AdapterConfig(num_layers=L, hidden_size=F, seq_length=T)

pytestmark = pytest.mark.usefixtures("float64")


def states() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(B, L, T, F))


def test_each_layer_s_class_token_is_scored_alone() -> None:
    model, given = LayerClassifiers(SIZES, K), states()
    found = model(paddle.to_tensor(given)).numpy()
    for layer, probe in enumerate(model.word_fc):
        expected = given[:, layer, 0] @ probe.weight.numpy() + probe.bias.numpy()
        np.testing.assert_allclose(found[:, layer], expected, rtol=1e-13)


def test_each_layer_s_tokens_are_scored_alone() -> None:
    model, given = LayerSpans(SIZES), states()
    start, end = model(paddle.to_tensor(given))
    for layer, probe in enumerate(model.word_fc):
        expected = given[:, layer] @ probe.weight.numpy() + probe.bias.numpy()
        np.testing.assert_allclose(start.numpy()[:, layer], expected[..., 0], rtol=1e-13)
        np.testing.assert_allclose(end.numpy()[:, layer], expected[..., 1], rtol=1e-13)


def test_a_probe_learns_as_it_would_alone() -> None:
    given = paddle.to_tensor(states())
    labels, answers = paddle.to_tensor([3, 1]), paddle.to_tensor([[0, 0], [2, 4]])
    classes, spans = LayerClassifiers(SIZES, K), LayerSpans(SIZES)
    starts, ends = spans(given)
    logits = classes(given)
    cases = (
        (
            classes,
            probe_loss(logits, labels),
            lambda at: classification_loss(logits[:, at], labels),
        ),
        (
            spans,
            probe_loss((starts, ends), answers),
            lambda at: span_loss((starts[:, at], ends[:, at]), answers),
        ),
    )
    for model, total, alone in cases:
        for layer, probe in enumerate(model.word_fc):
            together, single = (
                paddle.grad(loss, probe.weight, retain_graph=True)[0].numpy()
                for loss in (total, alone(layer))
            )
            np.testing.assert_allclose(together, single, rtol=1e-12, atol=1e-15)
            assert np.abs(single).max() > 1e-3


def test_a_regression_has_one_output() -> None:
    model, given = LayerClassifiers(SIZES, 1), paddle.to_tensor(states())
    logits, labels = model(given), np.array([2.5, 0.5])
    expected = ((logits.numpy()[..., 0] - labels[:, None]) ** 2).mean(0).sum()
    assert float(probe_loss(logits, paddle.to_tensor(labels))) == pytest.approx(expected, rel=1e-12)
