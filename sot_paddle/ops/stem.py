"""The stem of the token embedding natively in float32: convolution, bias and max-pooling.

Shape legend: B samples, C channels before and D after, H x W pixels.
"""

from __future__ import annotations

import paddle

from sot_paddle.ops.dispatch import run, runs_natively


def can_run(images: paddle.Tensor, weight: paddle.Tensor) -> bool:
    """Whether :func:`stem` computes on these images here; not where they are to get a gradient."""
    trained = paddle.is_grad_enabled() and not images.stop_gradient
    return not trained and runs_natively(images, weight) and images.ndim == 4 and images.size > 0


def stem(images: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    """3x3 convolution, then the maxima of windows of 3x3 pixels, two pixels apart.

    Args:
        images: (B, C, H, W), float32 on the CPU; they get no gradient.
        weight: (D, C, 3, 3), likewise.
        bias: (D,), likewise.

    Returns:
        (B, D, (H + 1) // 2, (W + 1) // 2). Gradient: of equal numbers in a window the first one
        gets it; once only.
    """
    return run("sot_stem", images, weight, bias)[0]
