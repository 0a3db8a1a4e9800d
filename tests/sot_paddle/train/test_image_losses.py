"""Soft targets, label smoothing and the sum of two losses."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.train.losses import cross_entropy, image_loss, smooth_targets, soft_cross_entropy

DRAW = np.random.default_rng(3)
LOGITS = DRAW.normal(size=(4, 5))
LABELS = np.array([1, 0, 4, 1])


def by_hand(logits: np.ndarray, targets: np.ndarray) -> float:
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return float(np.mean([-(t * np.log(p)).sum() for t, p in zip(targets, shares, strict=True)]))


def test_soft_targets() -> None:
    targets = DRAW.dirichlet(np.ones(5), size=4)
    loss = soft_cross_entropy(paddle.to_tensor(LOGITS), paddle.to_tensor(targets))
    assert float(loss) == pytest.approx(by_hand(LOGITS, targets), rel=1e-12)
    assert float(image_loss(paddle.to_tensor(LOGITS), paddle.to_tensor(targets), 0.1)) == float(
        loss
    )


def test_one_hot_targets_are_labels() -> None:
    hot = paddle.to_tensor(np.eye(5)[LABELS])
    soft = float(image_loss(paddle.to_tensor(LOGITS), hot))
    hard = float(image_loss(paddle.to_tensor(LOGITS), paddle.to_tensor(LABELS)))
    assert soft == pytest.approx(hard, rel=1e-12)


def test_smoothing() -> None:
    targets = np.full((4, 5), 0.2 / 5)
    targets[np.arange(4), LABELS] += 0.8
    found = smooth_targets(paddle.to_tensor(LABELS), 5, 0.2)
    np.testing.assert_allclose(found.numpy(), targets, rtol=1e-6)
    loss = image_loss(paddle.to_tensor(LOGITS), paddle.to_tensor(LABELS), 0.2)
    assert float(loss) == pytest.approx(by_hand(LOGITS, targets), rel=1e-6)


def test_the_losses_of_a_pair_are_added() -> None:
    first, second = paddle.to_tensor(LOGITS), paddle.to_tensor(LOGITS[::-1].copy())
    labels = paddle.to_tensor(LABELS)
    both = image_loss((first, second), labels)
    assert float(both) == pytest.approx(
        float(cross_entropy(first, labels)) + float(cross_entropy(second, labels)), rel=1e-12
    )


def test_half_precision_is_computed_in_float32() -> None:
    logits = paddle.to_tensor(LOGITS.astype("float32")).astype("bfloat16")
    assert image_loss(logits, paddle.to_tensor(np.eye(5)[LABELS])).dtype == paddle.float32
