"""Losses of images where no alignment case goes: soft targets are not smoothed; half precision."""

from __future__ import annotations

import numpy as np
import paddle

from sot_paddle.tasks.losses import image_loss

DRAW = np.random.default_rng(3)
LOGITS = DRAW.normal(size=(4, 5))
LABELS = np.array([1, 0, 4, 1])


def test_soft_targets_are_not_smoothed() -> None:
    targets = paddle.to_tensor(DRAW.dirichlet(np.ones(5), size=4))
    logits = paddle.to_tensor(LOGITS)
    assert float(image_loss(logits, targets, 0.1)) == float(image_loss(logits, targets))


def test_half_precision_is_computed_in_float32() -> None:
    logits = paddle.to_tensor(LOGITS.astype("float32")).astype("bfloat16")
    assert image_loss(logits, paddle.to_tensor(np.eye(5)[LABELS])).dtype == paddle.float32
