"""Losses: no valid label, shapes of a regression, half precision; values: cases loss_*."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.tasks.losses import cross_entropy, image_loss, mean_squared_error

B, K = 5, 3
LABELS = np.array([2, 0, 1, 0, 2])


def logits(seed: int = 0, classes: int = K) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, classes)) * 3


def test_nothing_but_ignored_labels_is_nan() -> None:
    labels = paddle.full([B], -100, dtype="int64")
    assert np.isnan(float(cross_entropy(paddle.to_tensor(logits()), labels)))


def test_mean_squared_error_does_not_broadcast() -> None:
    column = paddle.to_tensor(logits(1, 1))
    labels = paddle.arange(B).astype("float64")
    expected = float(mean_squared_error(column, labels))
    assert float(mean_squared_error(column, labels.unsqueeze(1))) == expected


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_logits_give_a_float32_loss(half: str) -> None:
    x = paddle.to_tensor(logits()).astype(half)
    loss = cross_entropy(x, paddle.to_tensor(LABELS))
    assert loss.dtype == paddle.float32
    exact = cross_entropy(x.astype("float64"), paddle.to_tensor(LABELS))
    assert float(loss) == pytest.approx(float(exact), rel=1e-6)
    one = paddle.to_tensor(logits(1, 1)).astype(half)
    assert mean_squared_error(one, paddle.to_tensor(LABELS)).dtype == paddle.float32
    soft = paddle.to_tensor(np.eye(K)[LABELS])
    assert image_loss(x, soft).dtype == paddle.float32


def test_soft_targets_are_not_smoothed() -> None:
    targets = paddle.to_tensor(np.random.default_rng(3).dirichlet(np.ones(K), size=B))
    x = paddle.to_tensor(logits())
    assert float(image_loss(x, targets, 0.1)) == float(image_loss(x, targets))
