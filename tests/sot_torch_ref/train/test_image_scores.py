"""Scores and the choice of the best, by hand and against timm's accuracy."""

from __future__ import annotations

import math

import pytest
import torch

from sot_torch_ref.train.image_scores import best_evaluation, image_scores


def test_scores_are_timm() -> None:
    from timm.utils import accuracy

    torch.manual_seed(3)
    logits, labels = torch.randn(23, 9), torch.randint(0, 9, (23,))
    scores = image_scores(logits, labels)
    first, fifth = accuracy(logits, labels, topk=(1, 5))
    assert scores["top1"] == pytest.approx(first.item())
    assert scores["top5"] == pytest.approx(fifth.item())
    assert scores["top1"] < scores["top5"] < 100.0


def test_scores_by_hand() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]]).log_softmax(1)
    scores = image_scores(logits, torch.tensor([0, 1]))
    assert "top5" not in scores
    expected = (math.log(1 + math.exp(-2.0)) + math.log(2.0)) / 2
    assert scores["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "maximise", "best"),
    [
        ((0.1, 0.7, 0.7, 0.2), True, 1),
        ((0.1, 0.7, 0.7, 0.2), False, 0),
        ((math.nan, 0.1, math.nan), True, 1),
        ((math.nan, 0.1, math.nan, -1.0), False, 3),
        ((math.nan, math.nan), True, 0),
    ],
)
def test_the_best_by_hand(values: tuple[float, ...], maximise: bool, best: int) -> None:
    assert best_evaluation(values, maximise=maximise) == best
