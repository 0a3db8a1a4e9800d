"""Soft targets against timm. Values: cases loss_*."""

import torch

from sot_torch_ref.train.losses import smooth_one_hot, soft_target_cross_entropy

LOGITS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, 4.0], [2.0, 2.0, -1.0], [0.0, 1.0, 0.0]])
LABELS = torch.tensor([2, 0, 1, 1])


def soft_rows(rows: int, classes: int) -> torch.Tensor:
    return torch.rand(rows, classes, dtype=torch.float64).softmax(dim=1)


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
