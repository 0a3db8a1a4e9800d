"""Losses against their formulas."""

import numpy as np
import pytest
import torch

from sot_torch_ref.train.losses import (
    cross_entropy,
    mean_squared_error,
    smooth_one_hot,
    soft_target_cross_entropy,
    task_loss,
)

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


def soft_rows(rows: int, classes: int) -> torch.Tensor:
    return torch.rand(rows, classes, dtype=torch.float64).softmax(dim=1)


def test_smooth_one_hot_by_hand() -> None:
    rows = smooth_one_hot(torch.tensor([1, 3]), 4, 0.2)
    expected = [[0.05, 0.85, 0.05, 0.05], [0.05, 0.05, 0.05, 0.85]]
    np.testing.assert_allclose(rows.numpy(), expected, rtol=1e-6)
    assert torch.equal(smooth_one_hot(LABELS, 3, 0.0), torch.eye(3)[LABELS])
    with pytest.raises(ValueError, match=r"smoothing must be in \[0, 1\), got -0.1"):
        smooth_one_hot(LABELS, 3, -0.1)


def test_soft_target_cross_entropy_by_formula() -> None:
    targets = soft_rows(4, 3)
    z, t = LOGITS.double().numpy(), targets.numpy()
    expected = -(t * (z - np.log(np.exp(z).sum(1, keepdims=True)))).sum(1).mean()
    loss = soft_target_cross_entropy(LOGITS.double(), targets)
    assert float(loss) == pytest.approx(expected, rel=1e-14)
    hard = torch.eye(3, dtype=torch.float64)[LABELS]
    loss = soft_target_cross_entropy(LOGITS.double(), hard)
    torch.testing.assert_close(loss, cross_entropy(LOGITS.double(), LABELS))


def test_soft_target_cross_entropy_is_timm() -> None:
    from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy

    targets, logits = soft_rows(4, 3), LOGITS.double()
    expected = SoftTargetCrossEntropy()(logits, targets)
    torch.testing.assert_close(soft_target_cross_entropy(logits, targets), expected)
    smooth = smooth_one_hot(LABELS, 3, 0.1).double()
    expected = LabelSmoothingCrossEntropy(0.1)(logits, LABELS)
    torch.testing.assert_close(
        soft_target_cross_entropy(logits, smooth), expected, rtol=1e-6, atol=0
    )


def test_soft_targets_of_a_pair_give_the_sum() -> None:
    targets, other = soft_rows(4, 3), LOGITS.flip(1).double()
    pair = soft_target_cross_entropy((LOGITS.double(), other), targets)
    expected = soft_target_cross_entropy(LOGITS.double(), targets)
    torch.testing.assert_close(pair, expected + soft_target_cross_entropy(other, targets))
    with pytest.raises(ValueError, match=r"expected logits and targets \(B, K\), got \(4, 3\)"):
        soft_target_cross_entropy(LOGITS, LABELS)
