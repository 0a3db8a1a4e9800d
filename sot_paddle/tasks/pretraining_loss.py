"""Losses of BERT's two tasks of pre-training.

Targets are one array (B, 2 P + 1): the words, their weights (1, or 0 of a place that is not used),
and whether the second text is a random one, -1 where that is not asked.

Shape legend: B samples, P masked words of a sample, V words.
"""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.functional import at_least_float32

_EPSILON = 1e-5
"""The original adds it to the number of masked words."""

SUMS = ("words_loss", "words", "words_right", "next_loss", "next_right")
"""Columns of :func:`row_sums`."""


def split_targets(targets: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
    """Words (B, P), weights (B, P) and next sentence (B,) of targets (B, 2 P + 1)."""
    places = targets.shape[1] // 2
    return targets[:, :places], targets[:, places : 2 * places], targets[:, -1]


def _losses(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Cross-entropy (...) of every label: scores (..., V), labels (...); float32 at least."""
    scores = at_least_float32(scores)
    return F.cross_entropy(scores, labels.unsqueeze(-1), reduction="none").squeeze(-1)


def pretraining_loss(
    outputs: tuple[paddle.Tensor, ...],
    targets: paddle.Tensor,
    *,
    words_weight: float,
    next_weight: float,
    every_place: bool,
) -> paddle.Tensor:
    """Weighted sum of the losses of both tasks.

    The loss of the words is ``sum(w ce) / (sum(w) + 1e-5)`` where the next sentence is judged (the
    original's), else the mean over the masked words, 0 without one.

    Args:
        outputs: scores (B, P, V), and (B, 2) where the next sentence is judged.
        targets: (B, 2 P + 1).
        words_weight: factor of the loss of the words.
        next_weight: factor of that of the next sentence.
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
    total = total * words_weight
    if len(outputs) > 1:
        total = total + next_weight * _losses(outputs[1], following).mean()
    return total


def row_sums(outputs: tuple[paddle.Tensor, ...], targets: paddle.Tensor) -> paddle.Tensor:
    """What an evaluation adds up, one row for each sample; columns as in `SUMS`.

    Args:
        outputs: as of :func:`pretraining_loss`.
        targets: (B, 2 P + 1).

    Returns:
        (B, 5), float32 at least.
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
