"""Compare the losses of our tasks with the reference's, and with PyTorch's own label smoothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

from sot_paddle.tasks.losses import classification_loss
from sot_torch_ref.train.losses import soft_target_cross_entropy, task_loss
from tests.parity.sides import assert_parity

SAMPLES, CLASSES, IGNORED = 7, 5, -100


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("kind", ["classes", "regression", "ignored", "soft"])
def test_loss_of_a_task(kind: str, pair: bool, dtype: str) -> None:
    rng, classes = np.random.default_rng(11), 1 if kind == "regression" else CLASSES
    logits = random_logits(rng, pair=pair, classes=classes, dtype=dtype)
    labels = rng.integers(0, CLASSES, SAMPLES)
    if kind == "regression":
        labels = rng.uniform(0, 5, SAMPLES).astype(dtype)
    if kind == "ignored":
        labels[:3] = IGNORED
    torch_loss = task_loss
    if kind == "soft":
        labels = rng.dirichlet(np.ones(CLASSES), SAMPLES).astype(dtype)
        torch_loss = soft_target_cross_entropy
    assert_parity(
        lambda *logits: classification_loss(one_or_pair(logits), paddle.to_tensor(labels)),
        lambda *logits: torch_loss(one_or_pair(logits), torch.tensor(labels)),
        logits,
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("smoothing", "pair"), [(0.1, False), (0.0, False), (0.3, True)])
def test_smoothed_labels(smoothing: float, pair: bool, dtype: str) -> None:
    rng = np.random.default_rng(13)
    logits = random_logits(rng, pair=pair, classes=CLASSES, dtype=dtype)
    labels = rng.integers(0, CLASSES, SAMPLES)

    def torch_loss(*logits: torch.Tensor) -> torch.Tensor:
        smoothed = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
        return sum(smoothed(tensor, torch.tensor(labels)) for tensor in logits)

    assert_parity(
        lambda *logits: classification_loss(
            one_or_pair(logits), paddle.to_tensor(labels), smoothing
        ),
        torch_loss,
        logits,
    )


def random_logits(
    rng: np.random.Generator, *, pair: bool, classes: int, dtype: str
) -> list[np.ndarray]:
    """Draw logits (B, K) once, or twice for ``sum_loss``."""
    return [(3.0 * rng.normal(size=(SAMPLES, classes))).astype(dtype) for _ in range(1 + pair)]


def one_or_pair(logits: tuple[Any, ...]) -> Any:
    """Return the only logits, or the two of ``sum_loss``, whose losses are added."""
    return logits[0] if len(logits) == 1 else logits
