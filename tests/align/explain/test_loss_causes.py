"""From a wrong loss to its cause: reductions, labels, formulas, options of library losses."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as ours
import pytest
import torch
import torch.nn.functional as theirs

from align.explain import loss_causes
from tests.align.paired_losses import (
    BITS,
    CROSS,
    IGNORED,
    LABELS,
    LOGS,
    SCORES,
    SOFT,
    TARGETS,
    caught,
    entropy,
    smoothed,
    valid_mean,
)
from tests.align.small_pairs import Scaled

PADDED = np.where(np.arange(8) % 4 == 0, 0, np.maximum(LABELS, 1))
CHANCES = 1 / (1 + np.exp(-SCORES))
WEIGHTS = [1.0, 2.0, 3.0, 4.0, 5.0]
WORDS = np.random.default_rng(3).normal(size=(3, 9, 7))
TEXT = np.random.default_rng(4).integers(1, 6, (3, 4))
LENGTHS, SIZES = np.array([9, 8, 9]), np.array([4, 2, 3])
WEIGHT = [0.2, 1.0, 3.0, 0.7, 2.0]


def t_ctc(z, y, **options):
    logs = theirs.log_softmax(z, -1).transpose(0, 1)
    return theirs.ctc_loss(logs, y, torch.tensor(LENGTHS), torch.tensor(SIZES), **options)


def p_ctc(z, y, **options):
    sizes = map(paddle.to_tensor, (LENGTHS, SIZES))
    return ours.ctc_loss(z.transpose([1, 0, 2]), y.astype("int32"), *sizes, **options)


def weighted(z, y, **options):
    options = {name: paddle.to_tensor(value, z.dtype) for name, value in options.items()}
    return ours.binary_cross_entropy_with_logits(z, y, **options)


def over_the_batch(z, y, eps):
    soft = ours.one_hot(y, z.shape[1]).astype(z.dtype) * (1 - eps) + eps / z.shape[1]
    return -(soft * ours.log_softmax(z, axis=0)).sum() / len(z)


@pytest.mark.parametrize(
    "row",
    [
        (
            CROSS,
            lambda z, y: entropy(z, y, reduction="sum"),
            "reduction: Paddle takes the sum, PyTorch takes the mean of 8 items",
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y, reduction="none").mean(),
            "all 8 items, PyTorch divides by the 6 items that count (loss and gradient are 0.75",
            SCORES,
            IGNORED,
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y.clip(0)),
            "ignore_index: the 2 labels -100 count in Paddle, PyTorch ignores them",
            SCORES,
            IGNORED,
        ),
        (
            CROSS,
            lambda z, y: valid_mean(z, paddle.where(y == 0, y * 0 - 100, y)),
            "ignore_index: the 2 labels 0 count in PyTorch, Paddle ignores them",
            SCORES,
            PADDED,
        ),
        (CROSS, lambda z, y: smoothed(z, y, 0.2), "label smoothing 0.2 in Paddle"),
        (
            lambda z, y: CROSS(z, y, weight=torch.tensor(WEIGHTS, dtype=z.dtype)),
            entropy,
            "weight of cross_entropy: Paddle has None, PyTorch [1, 2, 3, 4, 5]",
        ),
        (
            CROSS,
            ours.nll_loss,
            "Paddle computes minus the output at the label (no logarithm is taken)",
        ),
        (
            CROSS,
            lambda z, y: ours.binary_cross_entropy_with_logits(
                z, ours.one_hot(y, 5).astype(z.dtype)
            ),
            "Paddle computes binary cross entropy of each class (sigmoid)",
        ),
        (
            lambda z, y: theirs.kl_div(z, y, reduction="batchmean"),
            ours.kl_div,
            "Paddle divides by all 40 elements, PyTorch takes the mean of 8 items",
            LOGS,
            SOFT,
        ),
        (
            theirs.mse_loss,
            lambda z, y: ((z - y) ** 2).sum(1).mean(),
            "Paddle divides by the 8 rows of the batch, PyTorch takes the mean of 40 items",
            SCORES,
            TARGETS,
        ),
        (
            theirs.mse_loss,
            ours.l1_loss,
            "Paddle computes absolute error, PyTorch squared error",
            SCORES,
            TARGETS,
        ),
        (
            theirs.binary_cross_entropy,
            ours.binary_cross_entropy_with_logits,
            (
                "Paddle computes binary cross entropy of scores (sigmoid), PyTorch binary cross "
                "entropy of probabilities"
            ),
            CHANCES,
            BITS,
        ),
        (
            theirs.binary_cross_entropy_with_logits,
            lambda z, y: ours.binary_cross_entropy_with_logits(ours.sigmoid(z), y),
            "(sigmoid is applied twice)",
            SCORES,
            BITS,
        ),
        (
            lambda z, y: theirs.mse_loss(z, y[:, None]),
            lambda z, y: ours.mse_loss(z, y[None]),
            "all pairs (the shapes of output and labels broadcast)",
            SCORES[:, :1],
            TARGETS[:, 0],
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y) + 0.25,
            "the value is PyTorch's plus 0.25, the gradient agrees: a term that does not depend",
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y) / 3,
            "loss and gradient are 0.333333 times PyTorch's",
        ),
        (
            lambda z, y: theirs.cross_entropy(z, y, label_smoothing=0.1),
            lambda z, y: over_the_batch(z, y, 0.1),
            "softmax over the batch (another axis) (label smoothing 0.1), PyTorch cross entropy (l",
        ),
        (
            CROSS,
            lambda z, y: entropy(z.detach(), y),
            "the gradient does not exist, the value is right: the graph is cut",
        ),
        (
            CROSS,
            lambda z, y: entropy(z.detach() + 0 * z, y),
            "the gradient is zero: Paddle's loss does not change",
        ),
        (
            CROSS,
            lambda z, y: entropy(Scaled.apply(z, 3.0), y),
            "the gradient is 3 times PyTorch's, the value is right",
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y).reshape([1]),
            "has the shape (1,) in Paddle and () in PyTorch: only the shape differs",
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y, reduction="none"),
            "in Paddle and () in PyTorch: reduction: one side has none",
        ),
        (
            CROSS,
            lambda z, y: entropy(z, y).astype("float32"),
            "the loss is float32 in Paddle and float64 in PyTorch",
        ),
        (CROSS, lambda z, y: entropy(z, y) * float("nan"), "not finite in Paddle"),
        (
            lambda z, y: CROSS(z, y, reduction="none"),
            lambda z, y: 2 * entropy(z, y, reduction="none").squeeze(-1),
            "every value of the loss is 2 times PyTorch's",
        ),
        (
            lambda z, y: CROSS(z, y, label_smoothing=0.1),
            lambda z, y: smoothed(ours.softmax(z), y, 0.1),
            "softmax is applied twice",
        ),
        (
            theirs.mse_loss,
            lambda z, y: (z.clip(90, 99) - y).square().mean(),
            "does not change with these outputs",
            SCORES,
            TARGETS,
        ),
        (
            lambda z, y: theirs.kl_div(
                theirs.log_softmax(z, 1), y.log(), reduction="sum", log_target=True
            ),
            lambda z, y: ours.kl_div(ours.log_softmax(z, 1), y.log(), reduction="sum"),
            "log_target of kl_div: Paddle has False, PyTorch True",
            SCORES,
            SOFT,
        ),
        (
            lambda z, y: theirs.binary_cross_entropy_with_logits(
                z, y, pos_weight=torch.tensor(WEIGHT, dtype=z.dtype)
            ),
            lambda z, y: weighted(z, y, weight=WEIGHT),
            "pos_weight of binary_cross_entropy_with_logits: Paddle has None, PyTorch [0.2, 1, 3,",
            SCORES,
            BITS,
        ),
        (
            lambda z, y: theirs.triplet_margin_loss(z, y, y.flip(0), margin=9.0, p=3, swap=True),
            lambda z, y: ours.triplet_margin_loss(z, y, y.flip(0), margin=9.0),
            "p of triplet_margin_loss: Paddle has 2, PyTorch 3; swap of triplet_margin_loss: "
            "Paddle has False, PyTorch True",
            SCORES,
            TARGETS,
        ),
        (
            t_ctc,
            lambda z, y: p_ctc(z, y, blank=6),
            "blank of ctc_loss: Paddle has 6, PyTorch 0",
            WORDS,
            TEXT,
        ),
    ],
)
def test_a_wrong_loss_is_named(row) -> None:
    reference, paddles, cause, *given = row
    found = caught(reference, paddles, *given)
    assert cause in found.cause, found.cause


def test_causes_hold_in_float32() -> None:
    found = caught(CROSS, lambda z, y: entropy(z, y, reduction="sum"), dtype="float32")
    assert "reduction: Paddle takes the sum" in found.cause
    found = caught(CROSS, lambda z, y: smoothed(z, y, 0.1), dtype="float32")
    assert "label smoothing 0.1 in Paddle, 0 in PyTorch (computed from the gr" in found.cause


def test_a_large_output_is_not_searched_through(monkeypatch) -> None:
    monkeypatch.setattr(loss_causes, "LARGEST", SCORES.size - 1)
    assert "smoothing" not in caught(CROSS, lambda z, y: smoothed(z, y, 0.2)).cause
