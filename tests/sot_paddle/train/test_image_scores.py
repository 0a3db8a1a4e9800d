"""Equal logits, few classes and the per-class table."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.tasks.images import label_ranks, score, score_classes


def test_of_equal_logits_the_first_wins() -> None:
    assert label_ranks(np.zeros((3, 4)), np.array([0, 1, 3])).tolist() == [0, 1, 3]


def test_five_classes_have_no_top5() -> None:
    logits = np.eye(5)
    assert set(score(logits, np.arange(5))) == {"top1", "loss"}
    shares = np.exp(1) / (np.exp(1) + 4)
    assert score(logits, np.arange(5))["loss"] == pytest.approx(-np.log(shares))


def test_table() -> None:
    logits = np.eye(4)[[0, 0, 2, 2, 1]]
    labels = np.array([0, 0, 0, 1, 1])
    first, second = score_classes(logits, labels, ("ant", "bee", "cow", "dog"))
    assert (first.name, first.images, first.mistaken_for, first.mistakes) == ("ant", 3, "cow", 1)
    assert first.top1 == pytest.approx(200 / 3)
    assert (second.name, second.top1, second.mistaken_for) == ("bee", 50.0, "cow")
    perfect = score_classes(np.eye(2), np.arange(2), ("a", "b"))
    assert [row.mistaken_for for row in perfect] == ["", ""]
