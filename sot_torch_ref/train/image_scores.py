"""Scores of an image classifier and the choice of the best evaluation.

Legend: M images, K classes.

Source: specs A.9; timm accuracy and CheckpointSaver.
"""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional as F


def image_scores(logits: torch.Tensor, labels: torch.Tensor, second: int = 5) -> dict[str, float]:
    """Share in percent of labels among the first and the first five classes, and the mean loss.

    Args:
        logits: (M, K).
        labels: (M,), integers.
        second: How many classes ``top5`` looks at; it is left out where there are no more.

    Returns:
        ``top1``, ``top5`` and ``loss``, the mean cross-entropy of the M images.
    """
    ranked = logits.topk(min(second, logits.shape[1]), dim=1).indices
    hits = ranked == labels[:, None]
    scores = {"top1": 100.0 * hits[:, :1].double().mean().item()}
    if logits.shape[1] > second:
        scores["top5"] = 100.0 * hits.any(dim=1).double().mean().item()
    return scores | {"loss": F.cross_entropy(logits.double(), labels).item()}


def best_evaluation(values: Sequence[float], *, maximise: bool = True) -> int:
    """Position of the best value: the first of equal ones, no nan where there is a number.

    Without any number it is the first.
    """
    best = 0
    for place, value in enumerate(values):
        better = value > values[best] if maximise else value < values[best]
        if better or (math.isnan(values[best]) and not math.isnan(value)):
            best = place
    return best
