"""Batch normalisation of images natively in float32, for `backbones.layers.BatchNorm2D`.

Shape legend: B samples, C channels, H x W pixels.
"""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops.dispatch import run, runs_natively

_PLAIN = F.batch_norm


def takes(x: paddle.Tensor) -> bool:
    """Whether :func:`normalize` computes on these images here and now."""
    return runs_natively(x) and F.batch_norm is _PLAIN and x.ndim == 4 and x.size > 0


def normalize(
    x: paddle.Tensor,
    scale: paddle.Tensor,
    bias: paddle.Tensor,
    running: tuple[paddle.Tensor, paddle.Tensor] | None,
    *,
    epsilon: float,
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Normalise each channel.

    Args:
        x: (B, C, H, W), float32 on the CPU.
        scale: (C,), likewise.
        bias: (C,), likewise.
        running: mean and variance (C,), without a gradient; None: those of these images.
        epsilon: added to the variance.

    Returns:
        (B, C, H, W); mean and biased variance (C,), without a gradient. Gradient: smooth; once
        only.
    """
    given = running or (None, None)
    y, mean, var = run("sot_image_norm", x, scale, bias, *given, epsilon, running is None)
    return y, mean.detach(), var.detach()
