"""Batch normalisation of images, a 1x1 convolution and average pooling natively in float32.

Shape legend: B samples, C channels before and D after, H x W pixels.
"""

from __future__ import annotations

import paddle

from sot_paddle.ops.dispatch import run, runs_natively


def can_run(x: paddle.Tensor, scale: paddle.Tensor, weight: paddle.Tensor) -> bool:
    """Whether :func:`transition` computes on these images here and now."""
    return runs_natively(x, scale, weight) and x.ndim == 4 and x.size > 0


def transition(
    x: paddle.Tensor,
    scale: paddle.Tensor,
    bias: paddle.Tensor,
    weight: paddle.Tensor,
    running: tuple[paddle.Tensor, paddle.Tensor] | None,
    *,
    step: int,
    epsilon: float,
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Normalise each channel, map the channels, and average squares of pixels.

    Args:
        x: (B, C, H, W), float32 on the CPU.
        scale: (C,), likewise.
        bias: (C,), likewise.
        weight: (D, C, 1, 1), likewise.
        running: mean and variance (C,), without a gradient; None: those of these images.
        step: side of the squares, 1 or 2; rows and columns that fill none are left out.
        epsilon: added to the variance.

    Returns:
        (B, D, H // step, W // step); mean and biased variance (C,), without a gradient.
        Gradient: smooth; once only.
    """
    moments = running or (None, None)
    y, mean, var = run(
        "sot_transition", x, scale, bias, weight, *moments, step, epsilon, running is None
    )
    return y, mean.detach(), var.detach()
