"""Losses of a Paddle training script; each is the port of a one-line PyTorch loss.

Shapes: B samples, K classes, H x W pixels.
"""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

WEIGHTS = (0.5, 2.0, 1.25, 0.75)
IGNORED, SMOOTHING, BETA = 255, 0.1, 0.5


def pixels(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Weighted cross entropy of (B, K, H, W) scores over the pixels that count."""
    weight = paddle.to_tensor(WEIGHTS, dtype=scores.dtype)
    terms = F.cross_entropy(
        scores.transpose([0, 2, 3, 1]),
        labels.unsqueeze(-1),
        ignore_index=IGNORED,
        reduction="none",
    ).squeeze(-1)
    counted = labels != IGNORED
    held = paddle.where(counted, labels, paddle.zeros_like(labels))
    weights = weight[held] * counted.astype(scores.dtype)
    return (terms * weights).sum() / weights.sum()


def smoothed(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Cross entropy with label smoothing of (B, K) scores."""
    classes = scores.shape[-1]
    targets = F.one_hot(labels, classes).astype(scores.dtype)
    targets = targets * (1.0 - SMOOTHING) + SMOOTHING / classes
    return -(targets * F.log_softmax(scores, axis=-1)).sum(axis=-1).mean()


def squares(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Mean squared error of (B, 1) scores against (B,) targets."""
    return F.mse_loss(scores.squeeze(-1), labels)


def huber(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Smooth L1 of (B, K) scores against one-hot labels, with its bend at BETA."""
    targets = F.one_hot(labels, scores.shape[-1]).astype(scores.dtype)
    apart = (scores - targets).abs()
    return paddle.where(apart < BETA, 0.5 * apart**2 / BETA, apart - 0.5 * BETA).mean()


def two_scores(outputs: tuple[paddle.Tensor, paddle.Tensor], labels: paddle.Tensor):
    """The sum of both classifiers' cross entropies (the ``sum_loss`` fusion in training)."""
    of_class, of_words = outputs
    return F.cross_entropy(of_class, labels) + F.cross_entropy(of_words, labels)


@paddle.no_grad()
def accuracy(scores: paddle.Tensor, labels: paddle.Tensor) -> dict[str, float]:
    """Share of right classes among the first one and the first two."""
    order = scores.argsort(axis=-1, descending=True)
    first = (order[:, 0] == labels).astype("float64").mean()
    second = (order[:, :2] == labels.unsqueeze(-1)).any(axis=-1).astype("float64").mean()
    return {"top1": float(first), "top2": float(second)}


@paddle.no_grad()
def pearson(scores: paddle.Tensor, labels: paddle.Tensor) -> float:
    """Correlation of (B, 1) scores with (B,) targets."""
    x, y = scores.squeeze(-1), labels
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / paddle.sqrt((x * x).sum() * (y * y).sum()))
