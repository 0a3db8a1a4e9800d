"""Losses by hand: the divisor of ignored labels, regression, half precision, spans."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.tasks.losses import (
    cross_entropy,
    mean_squared_error,
    span_loss,
)

B, K = 5, 3
LABELS = np.array([2, 0, 1, 0, 2])


def logits(seed: int = 0, classes: int = K) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, classes)) * 3


def entropy_by_hand(x: np.ndarray, labels: np.ndarray) -> float:
    terms = [
        np.log(np.exp(row).sum()) - row[label]
        for row, label in zip(x, labels, strict=True)
        if label != -100
    ]
    return sum(terms) / len(terms)


def test_ignored_labels_do_not_enter_the_divisor(check_gradient) -> None:
    labels = np.where(np.arange(B) == 2, -100, LABELS * 2 % 3 * 2 % 3)
    given = paddle.to_tensor(labels)
    loss = cross_entropy(paddle.to_tensor(logits()), given)
    assert float(loss) == pytest.approx(entropy_by_hand(logits(), labels), rel=1e-13)
    check_gradient(lambda x: cross_entropy(x, given), logits())


def test_nothing_but_ignored_labels_is_nan() -> None:
    labels = paddle.full([B], -100, dtype="int64")
    assert np.isnan(float(cross_entropy(paddle.to_tensor(logits()), labels)))


@pytest.mark.parametrize("shape", [(B, 1), (B,)])
@pytest.mark.parametrize("kind", ["float64", "float32", "int64"])
def test_mean_squared_error(shape: tuple, kind: str) -> None:
    x = logits(1, 1)
    labels = paddle.to_tensor(np.arange(B) * 2).astype(kind)
    loss = mean_squared_error(paddle.to_tensor(x.reshape(shape)), labels)
    assert loss.dtype == paddle.float64
    assert float(loss) == pytest.approx(((x[:, 0] - np.arange(B) * 2) ** 2).mean(), rel=1e-13)


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
    exact = entropy_by_hand(x.astype("float64").numpy(), LABELS)
    assert float(loss) == pytest.approx(exact, rel=1e-6)
    one = paddle.to_tensor(logits(1, 1)).astype(half)
    assert mean_squared_error(one, paddle.to_tensor(LABELS)).dtype == paddle.float32


def test_the_loss_of_a_span_is_the_mean_of_its_two_ends() -> None:
    rng = np.random.default_rng(3)
    start, end = (rng.normal(size=(3, 5)) for _ in range(2))
    spans = np.array([[0, 0], [1, 4], [3, 3]])

    def entropy(logits: np.ndarray, places: np.ndarray) -> float:
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return float(-np.log(shares[np.arange(3), places]).mean())

    expected = (entropy(start, spans[:, 0]) + entropy(end, spans[:, 1])) / 2
    given = (paddle.to_tensor(start), paddle.to_tensor(end))
    found = span_loss(given, paddle.to_tensor(spans))
    assert float(found) == pytest.approx(expected, rel=1e-12)
