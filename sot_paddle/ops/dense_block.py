"""A dense block of the token embedding natively in float32.

Shape legend: B samples, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from sot_paddle.ops.dispatch import run, runs_natively


def can_run(x: paddle.Tensor, weights: Sequence[paddle.Tensor]) -> bool:
    """Whether :func:`dense_block` computes on these images here and now."""
    # a traced tensor has no size yet: whether anything runs natively is asked first
    return (
        runs_natively(x)
        and x.ndim == 4
        and x.size > 0
        and all(weight.dtype == x.dtype for weight in weights)
    )


def dense_block(x: paddle.Tensor, weights: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """Layers of ReLU, 1x1 convolution, ReLU and 3x3 convolution; each sees all channels so far.

    Args:
        x: (B, C, H, W), float32 on the CPU.
        weights: of each layer (hidden, channels so far, 1, 1) and (new, hidden, 3, 3).

    Returns:
        (B, C + all new, H, W), the input's channels first. Gradient: as the plain form's; once
        only.
    """
    return run("sot_dense_block", x, list(weights))
