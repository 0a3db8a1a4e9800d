"""Losses of the text tasks and of image classification with soft targets."""

import torch
from torch.nn import functional as F

IGNORE_INDEX = -100


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORE_INDEX
) -> torch.Tensor:
    """Mean over the valid labels of logsumexp(z) - z[label].

    Args:
        logits: (B, K).
        labels: (B,), integers from 0 to K - 1, or ``ignore_index`` for a row that does not count.
        ignore_index: Label to leave out, from the sum and from the divisor.

    Returns:
        0-dim; nan if no label is valid (0 / 0).

    Source: traps page, "Two more that bite".
    """
    return F.cross_entropy(logits, labels.reshape(-1), ignore_index=ignore_index)


def mean_squared_error(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean over the batch of (z - y)^2.

    Args:
        logits: (B, 1) or (B,).
        labels: (B,) or (B, 1); converted to the dtype of the logits.

    Returns:
        0-dim.

    Source: specs B.1 (regression).
    """
    return ((logits.reshape(-1) - labels.reshape(-1).to(logits.dtype)) ** 2).mean()


def task_loss(
    logits: torch.Tensor | tuple[torch.Tensor, ...],
    labels: torch.Tensor,
    *,
    ignore_index: int = IGNORE_INDEX,
) -> torch.Tensor:
    """Loss of a model's output: squared error for K = 1, cross entropy otherwise.

    The pair (cls_logits, word_logits) that the fusion "sum_loss" gives in train mode counts as the
    sum of the two losses.

    Args:
        logits: (B, K), or a tuple of such.
        labels: (B,).
        ignore_index: See ``cross_entropy``.

    Returns:
        0-dim.

    Raises:
        ValueError: Logits that are not (B, K), or another number of labels.

    Source: specs A.6 (sum_loss) and B.1.
    """
    if isinstance(logits, tuple):
        losses = [task_loss(part, labels, ignore_index=ignore_index) for part in logits]
        return torch.stack(losses).sum()
    if logits.ndim != 2 or labels.numel() != logits.shape[0]:
        raise ValueError(
            "expected logits (B, K) and B labels, got "
            f"{tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if logits.shape[1] == 1:
        return mean_squared_error(logits, labels)
    return cross_entropy(logits, labels, ignore_index=ignore_index)


def smooth_one_hot(labels: torch.Tensor, num_classes: int, smoothing: float) -> torch.Tensor:
    """One-hot rows with label smoothing: eps / K off the label, 1 - eps + eps / K on it.

    Args:
        labels: (B,), integers from 0 to K - 1.
        num_classes: Number K of classes.
        smoothing: eps, in [0, 1).

    Returns:
        (B, K), in torch's default dtype; the rows sum to 1.

    Raises:
        ValueError: A smoothing out of range.

    Source: specs A.9.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"smoothing must be in [0, 1), got {smoothing!r}")
    off = smoothing / num_classes
    rows = torch.full((len(labels), num_classes), off)
    return rows.scatter(1, labels.long()[:, None], 1.0 - smoothing + off)


def soft_target_cross_entropy(
    logits: torch.Tensor | tuple[torch.Tensor, ...], targets: torch.Tensor
) -> torch.Tensor:
    """Mean over the batch of - sum_k t_k log softmax(z)_k.

    The pair that the fusion "sum_loss" gives in train mode counts as the sum of the two losses.

    Args:
        logits: (B, K), or a tuple of such.
        targets: (B, K), rows of probabilities.

    Returns:
        0-dim.

    Raises:
        ValueError: Shapes that differ.

    Source: specs A.6 (sum_loss) and A.9.
    """
    if isinstance(logits, tuple):
        return torch.stack([soft_target_cross_entropy(part, targets) for part in logits]).sum()
    if logits.ndim != 2 or logits.shape != targets.shape:
        raise ValueError(
            "expected logits and targets (B, K), got "
            f"{tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    return -(targets * F.log_softmax(logits, dim=1)).sum(dim=1).mean()


def span_loss(logits: tuple[torch.Tensor, torch.Tensor], spans: torch.Tensor) -> torch.Tensor:
    """Half the sum of the two cross entropies of start and end.

    With a layer axis (B, L, T) every layer has a loss of its own; they are added.

    Args:
        logits: Start and end, each (B, T) or (B, L, T).
        spans: (B, 2), token positions.

    Returns:
        0-dim.

    Source: specs C.1.
    """
    total = torch.zeros((), dtype=logits[0].dtype)
    for scores, positions in zip(logits, spans.unbind(dim=1), strict=True):
        chosen = F.log_softmax(scores, dim=-1)
        index = positions.reshape(-1, *(1,) * (scores.ndim - 1)).expand(*scores.shape[:-1], 1)
        total = total - chosen.gather(-1, index).mean(dim=0).sum() / 2
    return total


def layers_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum of the task losses of the layers' probes.

    Args:
        logits: (B, L, K).
        labels: (B,).

    Returns:
        0-dim.
    """
    return torch.stack([task_loss(part, labels) for part in logits.unbind(dim=1)]).sum()
