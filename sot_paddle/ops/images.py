"""Stages of the token embedding natively in float32; None where no operator takes the images.

Shape legend: B samples, C channels before and D after, H x W pixels. All tensors are float32 on the
CPU; every gradient can be taken once.
"""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from sot_paddle.ops.dispatch import run, runs_natively


def _can_run(images: paddle.Tensor, *weights: paddle.Tensor) -> bool:
    # a traced tensor has no size yet: whether anything runs natively is asked first
    return runs_natively(images, *weights) and images.ndim == 4 and images.size > 0


def stem(images: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor | None:
    """3x3 convolution, then the maxima of windows of 3x3 pixels, two pixels apart.

    Args:
        images: (B, C, H, W); where they are to get a gradient, no operator takes them.
        weight: (D, C, 3, 3).
        bias: (D,).

    Returns:
        (B, D, (H + 1) // 2, (W + 1) // 2). Gradient: of equal numbers in a window the first one
        gets it.
    """
    is_trained = paddle.is_grad_enabled() and not images.stop_gradient
    if is_trained or not _can_run(images, weight):
        return None
    return run("sot_stem", images, weight, bias)[0]


def dense_block(x: paddle.Tensor, weights: Sequence[paddle.Tensor]) -> paddle.Tensor | None:
    """Layers of ReLU, 1x1 convolution, ReLU and 3x3 convolution; each sees all channels so far.

    Args:
        x: (B, C, H, W).
        weights: of each layer (hidden, channels so far, 1, 1) and (new, hidden, 3, 3).

    Returns:
        (B, C + all new, H, W), the input's channels first. Gradient: as the plain form's.
    """
    if not _can_run(x, *weights):
        return None
    return run("sot_dense_block", x, list(weights))


def transition(
    x: paddle.Tensor,
    scale: paddle.Tensor,
    bias: paddle.Tensor,
    weight: paddle.Tensor,
    running: tuple[paddle.Tensor, paddle.Tensor] | None,
    *,
    step: int,
    epsilon: float,
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor] | None:
    """Normalise each channel, map the channels by a 1x1 convolution, and average squares of pixels.

    Args:
        x: (B, C, H, W).
        scale: (C,).
        bias: (C,).
        weight: (D, C, 1, 1).
        running: mean and variance (C,), without a gradient; None: those of these images.
        step: side of the squares, 1 or 2; rows and columns that fill none are left out.
        epsilon: added to the variance.

    Returns:
        (B, D, H // step, W // step); mean and biased variance (C,), without a gradient.
        Gradient: smooth.
    """
    if not _can_run(x, scale, weight):
        return None
    moments = running or (None, None)
    y, mean, var = run(
        "sot_transition", x, scale, bias, weight, *moments, step, epsilon, running is None
    )
    return y, mean.detach(), var.detach()
