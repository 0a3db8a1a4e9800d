"""Scores against timm's accuracy; the choice of the best: cases best_*."""

from __future__ import annotations

import pytest
import torch

from sot_torch_ref.train.image_scores import image_scores


def test_scores_are_timm() -> None:
    from timm.utils import accuracy

    torch.manual_seed(3)
    logits, labels = torch.randn(23, 9), torch.randint(0, 9, (23,))
    scores = image_scores(logits, labels)
    first, fifth = accuracy(logits, labels, topk=(1, 5))
    assert scores["top1"] == pytest.approx(first.item())
    assert scores["top5"] == pytest.approx(fifth.item())
    assert scores["top1"] < scores["top5"] < 100.0
