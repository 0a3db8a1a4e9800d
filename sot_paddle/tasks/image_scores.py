"""Scores of images.

Shape legend: M images, K classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sot_paddle.tasks.losses import mean_loss

TOP = 5
"""The second accuracy counts a label among the best five, where there are more classes."""


def label_ranks(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many classes a label's own is behind, (M,): 0 is a hit. Of equal logits the first wins.

    Logits are (M, K), labels (M,).
    """
    label_logits = logits[np.arange(len(labels)), labels][:, None]  # (M, 1)
    earlier = np.arange(logits.shape[1])[None, :] < labels[:, None]
    return ((logits > label_logits) | ((logits == label_logits) & earlier)).sum(axis=1)


def score(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracies in percent and the mean loss of logits (M, K) and labels (M,).

    Returns:
        ``top1``; ``top5`` where there are more than five classes; ``loss``, the cross-entropy.
    """
    ranks = label_ranks(logits, labels)
    scores = {"top1": 100.0 * float(np.mean(ranks == 0))}
    if logits.shape[1] > TOP:
        scores["top5"] = 100.0 * float(np.mean(ranks < TOP))
    return scores | {"loss": mean_loss(logits, labels)}


@dataclass(frozen=True)
class ClassScore:
    """A row of the per-class table: a class, its images, per cent of them that are recognised, and
    which class they are most often taken for, "" when never."""

    name: str
    images: int
    top1: float
    mistaken_for: str
    mistakes: int


def score_classes(
    logits: np.ndarray, labels: np.ndarray, classes: Sequence[str]
) -> list[ClassScore]:
    """The per-class table of logits (M, K), labels (M,) and K names; without empty classes."""
    choices = logits.argmax(axis=1)
    rows = []
    for label, name in enumerate(classes):
        chosen = choices[labels == label]
        if not len(chosen):
            continue
        wrong = Counter(int(choice) for choice in chosen if choice != label)
        other, count = max(wrong.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        top1 = 100.0 * float(np.mean(chosen == label))
        rows.append(ClassScore(name, len(chosen), top1, classes[other] if count else "", count))
    return rows
