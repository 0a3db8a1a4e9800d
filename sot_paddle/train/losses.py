"""Losses of the classification and regression heads.

Shape legend: B samples, K classes.
"""

from __future__ import annotations

import paddle
from paddle.nn import functional

_HALF = (paddle.float16, paddle.bfloat16)

Logits = paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]


def cross_entropy(
    logits: paddle.Tensor, labels: paddle.Tensor, *, ignore_index: int = -100
) -> paddle.Tensor:
    """Mean cross-entropy over the labels that are not ``ignore_index``.

    PADDLE: its own mean divides by B, torch's by the number of valid labels; this is torch's.

    Args:
        logits: (B, K).
        labels: (B,) integer.
        ignore_index: label that counts for nothing.

    Returns:
        Scalar, float32 at least; NaN when no label is valid, as in torch.
    """
    logits = logits.astype("float32") if logits.dtype in _HALF else logits
    total = functional.cross_entropy(logits, labels, reduction="sum", ignore_index=ignore_index)
    return total / (labels != ignore_index).sum().astype(logits.dtype)


def mean_squared_error(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Mean of ``(logits - labels)^2`` for a regression head.

    Args:
        logits: (B, 1) or (B,).
        labels: (B,) numbers.

    Returns:
        Scalar, float32 at least.
    """
    logits = logits.astype("float32") if logits.dtype in _HALF else logits
    return functional.mse_loss(logits.reshape([-1]), labels.reshape([-1]).astype(logits.dtype))


def classification_loss(logits: Logits, labels: paddle.Tensor) -> paddle.Tensor:
    """Loss of any head: mean squared error when K is 1, else cross-entropy.

    Args:
        logits: (B, K), or the pair that a ``sum_loss`` head returns in training mode, whose two
            losses are added.
        labels: (B,) integers, or numbers when K is 1.

    Returns:
        Scalar.

    Source: A.6 (sum_loss), B.1 (regression).
    """
    if isinstance(logits, tuple):
        return classification_loss(logits[0], labels) + classification_loss(logits[1], labels)
    if logits.shape[-1] == 1:
        return mean_squared_error(logits, labels)
    return cross_entropy(logits, labels)
