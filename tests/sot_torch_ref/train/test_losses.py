"""Losses against their formulas."""

import numpy as np
import pytest
import torch

from sot_torch_ref.train.losses import cross_entropy, mean_squared_error, task_loss

LOGITS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, 4.0], [2.0, 2.0, -1.0], [0.0, 1.0, 0.0]])
LABELS = torch.tensor([2, 0, 1, 1])


def by_formula(rows: list[int]) -> float:
    z = LOGITS.double().numpy()
    values = [np.log(np.exp(z[i]).sum()) - z[i, int(LABELS[i])] for i in rows]
    return float(np.mean(values))


def test_cross_entropy() -> None:
    loss = cross_entropy(LOGITS.double(), LABELS)
    assert float(loss) == pytest.approx(by_formula([0, 1, 2, 3]), rel=1e-14)
    assert torch.equal(loss, cross_entropy(LOGITS.double(), LABELS[:, None]))


def test_ignored_labels_leave_sum_and_divisor() -> None:
    labels = torch.tensor([2, -100, 1, 1])
    loss = cross_entropy(LOGITS.double(), labels)
    assert float(loss) == pytest.approx(by_formula([0, 2, 3]), rel=1e-14)
    other = cross_entropy(LOGITS.double(), torch.tensor([2, 7, 1, 1]), ignore_index=7)
    assert torch.equal(loss, other)
    assert torch.isnan(cross_entropy(LOGITS, torch.full((4,), -100)))


def test_mean_squared_error() -> None:
    loss = mean_squared_error(torch.tensor([[1.0], [2.5]]), torch.tensor([3, 2]))
    assert float(loss) == pytest.approx((4.0 + 0.25) / 2)


def test_task_loss_chooses_by_the_number_of_scores() -> None:
    assert torch.equal(task_loss(LOGITS, LABELS), cross_entropy(LOGITS, LABELS))
    scores = LOGITS[:, :1]
    assert torch.equal(task_loss(scores, LABELS), mean_squared_error(scores, LABELS))


def test_task_loss_of_a_pair_is_the_sum() -> None:
    other = LOGITS.flip(1).double()
    pair = task_loss((LOGITS.double(), other), LABELS)
    expected = cross_entropy(LOGITS.double(), LABELS) + cross_entropy(other, LABELS)
    torch.testing.assert_close(pair, expected)
    scores = (LOGITS[:, :1], LOGITS[:, 1:2])
    expected = mean_squared_error(scores[0], LABELS) + mean_squared_error(scores[1], LABELS)
    torch.testing.assert_close(task_loss(scores, LABELS), expected)
    labels = torch.tensor([2, -100, 1, 1])
    assert task_loss((LOGITS, LOGITS), labels).isfinite()


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"expected logits \(B, K\) and B labels"):
        task_loss(LOGITS[0], LABELS)
    with pytest.raises(ValueError, match=r"expected logits \(B, K\) and B labels"):
        task_loss(LOGITS, LABELS[:3])
