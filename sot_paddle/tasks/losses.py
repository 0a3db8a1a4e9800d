"""Losses: classification, regression, images with soft targets, spans, and BERT's pre-training.

Targets of a pre-training are one array (B, 2 P + 1): the words, their weights (1, or 0 of a place
that is not used), and whether the second text is a random one, -1 where that is not asked.

Shape legend: B samples, M examples, K classes, P masked words of a sample, V words.
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle.nn import functional
from scipy.special import log_softmax

from sot_paddle.functional import at_least_float32
from sot_paddle.tasks.task import Outputs

_IGNORED = -100
"""The label that counts for nothing, as both frameworks have it."""

_EPSILON = 1e-5
"""The original adds it to the number of masked words."""

SUMS = ("words_loss", "words", "words_right", "next_loss", "next_right")
"""Columns of :func:`row_sums`."""


def cross_entropy(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Mean cross-entropy over the labels that are not -100.

    PADDLE: its own mean divides by B, torch's by the number of valid labels; this is torch's.

    Args:
        logits: (B, K).
        labels: (B,) integer; -100 counts for nothing.

    Returns:
        Scalar, float32 at least; NaN when no label is valid, as in torch.
    """
    logits = at_least_float32(logits)
    total = functional.cross_entropy(logits, labels, reduction="sum")
    return total / (labels != _IGNORED).sum().astype(logits.dtype)


def soft_cross_entropy(logits: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Mean over B of ``-sum_k targets_k log softmax(logits)_k``.

    Args:
        logits: (B, K).
        targets: (B, K) weights of the classes, each row usually of sum 1.

    Returns:
        Scalar, float32 at least.

    Source: A.9 (mixup, cutmix, label smoothing).
    """
    logits = at_least_float32(logits)
    log_shares = functional.log_softmax(logits, axis=-1)
    return -(targets.astype(logits.dtype) * log_shares).sum(axis=-1).mean()


def smooth_targets(labels: paddle.Tensor, num_classes: int, smoothing: float) -> paddle.Tensor:
    """Soft targets of labels (B,): ``1 - s + s / K`` for the label, ``s / K`` for the others.

    Returns:
        (B, K), Paddle's default dtype.

    Source: A.9.
    """
    hot = functional.one_hot(labels, num_classes).astype(paddle.get_default_dtype())
    return hot * (1.0 - smoothing) + smoothing / num_classes


def mean_squared_error(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Mean of ``(logits - labels)^2``: a regression head's (B, 1) or (B,), and (B,) numbers.

    Returns:
        Scalar, float32 at least.
    """
    logits = at_least_float32(logits)
    return functional.mse_loss(logits.reshape([-1]), labels.reshape([-1]).astype(logits.dtype))


def classification_loss(
    logits: Outputs, labels: paddle.Tensor, smoothing: float = 0.0
) -> paddle.Tensor:
    """Training loss of a classifier, a scalar: mean squared error when K is 1, else cross-entropy.

    Args:
        logits: (B, K), or the pair that a ``sum_loss`` head returns in training mode, whose two
            losses are added.
        labels: (B,) integers, numbers when K is 1, or soft targets (B, K), taken as they are.
        smoothing: of integer labels.

    Source: A.6 (sum_loss), A.9 (images), B.1 (regression).
    """
    if isinstance(logits, tuple):
        return sum(classification_loss(part, labels, smoothing) for part in logits)
    if logits.shape[-1] == 1:
        return mean_squared_error(logits, labels)
    if len(labels.shape) == 2:
        return soft_cross_entropy(logits, labels)
    if smoothing:
        return soft_cross_entropy(logits, smooth_targets(labels, logits.shape[-1], smoothing))
    return cross_entropy(logits, labels)


def span_loss(logits: tuple[paddle.Tensor, paddle.Tensor], spans: paddle.Tensor) -> paddle.Tensor:
    """Mean of the cross-entropies of the first and of the last token of an answer.

    Args:
        logits: start and end logits, each (B, T).
        spans: (B, 2) positions of the first and the last token; those of an answer that is not
            there are the class token's.

    Returns:
        Scalar, float32 at least.

    Source: C.1.
    """
    starts, ends = (cross_entropy(part, spans[:, at]) for at, part in enumerate(logits))
    return (starts + ends) / 2


def probe_loss(logits: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
    """Sum over the layers of the loss of each layer's probe.

    Args:
        logits: (B, L, K), or start and end logits, each (B, L, T).
        labels: (B,) integers, numbers when K is 1, or (B, 2) spans.

    Returns:
        Scalar, float32 at least; its gradient for a probe is that of the probe's own loss.
    """
    if isinstance(logits, tuple):
        starts, ends = logits
        layers = range(starts.shape[1])
        return sum(span_loss((starts[:, at], ends[:, at]), labels) for at in layers)
    return sum(classification_loss(logits[:, at], labels) for at in range(logits.shape[1]))


def mean_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy of logits (M, K), or mean squared error when K is 1; in float64."""
    logits = logits.astype(np.float64)
    if logits.shape[1] == 1:
        return float(np.mean((logits.ravel() - labels) ** 2))
    return float(np.mean(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels]))


def split_targets(targets: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
    """Words (B, P), weights (B, P) and next sentence (B,) of targets (B, 2 P + 1)."""
    places = targets.shape[1] // 2
    return targets[:, :places], targets[:, places : 2 * places], targets[:, -1]


def _losses(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Cross-entropy (...) of every label: scores (..., V), labels (...); float32 at least."""
    scores = at_least_float32(scores)
    return functional.cross_entropy(scores, labels.unsqueeze(-1), reduction="none").squeeze(-1)


def pretraining_loss(
    outputs: tuple[paddle.Tensor, ...],
    targets: paddle.Tensor,
    *,
    every_place: bool,
) -> paddle.Tensor:
    """Sum of the losses of both tasks.

    The loss of the words is ``sum(w ce) / (sum(w) + 1e-5)`` where the next sentence is judged (the
    original's), else the mean over the masked words, 0 without one.

    Args:
        outputs: scores (B, P, V), and (B, 2) where the next sentence is judged.
        targets: (B, 2 P + 1).
        every_place: QUIRK of the Paddle port: the plain mean over all P places, also those that
            are not used, whose word is id 0.

    Returns:
        Scalar, float32 at least.

    Source: specs.md D.1 and E.3.
    """
    words, weights, following = split_targets(targets)
    losses = _losses(outputs[0], words)
    kept = weights.astype(losses.dtype)
    if every_place:
        total = losses.mean()
    elif len(outputs) > 1:
        total = (losses * kept).sum() / (kept.sum() + _EPSILON)
    else:
        total = (losses * kept).sum() / kept.sum().clip(min=1.0)
    if len(outputs) > 1:
        total = total + _losses(outputs[1], following).mean()
    return total


def row_sums(outputs: tuple[paddle.Tensor, ...], targets: paddle.Tensor) -> paddle.Tensor:
    """What an evaluation adds up, (B, 5), float32 at least: columns as in `SUMS`.

    Outputs and targets are as of :func:`pretraining_loss`.
    """
    words, weights, following = split_targets(targets)
    losses = _losses(outputs[0], words)
    kept = weights.astype(losses.dtype)
    right = (outputs[0].argmax(axis=2) == words).astype(losses.dtype)
    columns = [(losses * kept).sum(axis=1), kept.sum(axis=1), (right * kept).sum(axis=1)]
    if len(outputs) > 1:
        guessed = (outputs[1].argmax(axis=1) == following).astype(losses.dtype)
        columns += [_losses(outputs[1], following), guessed]
    else:
        columns += [paddle.zeros_like(columns[0])] * 2
    return paddle.stack(columns, axis=1)
