"""The reference's models on hidden states, by loops. Dims: B 2, L 3, T 5, F 7, A 4, K 6."""

import pytest
import torch

from sot_torch_ref.heads.adapter_pooler import (
    AdapterClassifier,
    AdapterSpans,
    LayerClassifiers,
    LayerSpans,
)
from sot_torch_ref.train.losses import layers_loss, span_loss, task_loss

B, L, T, F, A, K = 2, 3, 5, 7, 4, 6

pytestmark = pytest.mark.usefixtures("float64")


def test_pooled_states_and_the_order_of_the_classifier() -> None:
    model, states = AdapterClassifier(L, F, T, A, num_classes=K), torch.randn(B, L, T, F)
    logits, taps = model(states)
    weight = model.word_fc.weight.reshape(K, T, A, L)
    expected = model.word_fc.bias.repeat(B, 1)
    for t in range(T):
        for layer in range(L):
            pooled = torch.nn.functional.gelu(model.pooling.proj(states[:, layer, t]))
            torch.testing.assert_close(taps["pooled"][:, t, :, layer], pooled)
            expected = expected + pooled @ weight[:, t, :, layer].T
    torch.testing.assert_close(logits, expected)


def test_a_width_of_zero_is_the_number_of_tokens() -> None:
    assert AdapterSpans(L, F, T).word_fc.weight.shape == (2, T * L)
    assert AdapterSpans(L, F, T, A).word_fc.weight.shape == (2, A * L)


def test_spans_by_token() -> None:
    model, states = AdapterSpans(L, F, T, A), torch.randn(B, L, T, F)
    (start, end), _ = model(states)
    for t in range(T):
        pooled = torch.nn.functional.gelu(model.pooling.proj(states[:, :, t]))  # (B, L, A)
        scores = model.word_fc(pooled.transpose(1, 2).flatten(1))
        torch.testing.assert_close(torch.stack([start[:, t], end[:, t]], 1), scores)


def test_probes_and_their_losses() -> None:
    states = torch.randn(B, L, T, F)
    classes, spans = LayerClassifiers(L, F, num_classes=K), LayerSpans(L, F)
    logits, _ = classes(states)
    (start, end), _ = spans(states)
    labels, answers = torch.tensor([5, 2]), torch.tensor([[0, 3], [1, 1]])
    for layer in range(L):
        torch.testing.assert_close(logits[:, layer], classes.word_fc[layer](states[:, layer, 0]))
        scores = spans.word_fc[layer](states[:, layer])
        torch.testing.assert_close(torch.stack([start[:, layer], end[:, layer]], -1), scores)
    alone = [task_loss(logits[:, layer], labels) for layer in range(L)]
    torch.testing.assert_close(layers_loss(logits, labels), sum(alone))
    entropy = torch.nn.functional.cross_entropy
    halves = [
        (entropy(start[:, at], answers[:, 0]) + entropy(end[:, at], answers[:, 1])) / 2
        for at in range(L)
    ]
    torch.testing.assert_close(span_loss((start, end), answers), sum(halves))
    torch.testing.assert_close(span_loss((start[:, 0], end[:, 0]), answers), halves[0])
