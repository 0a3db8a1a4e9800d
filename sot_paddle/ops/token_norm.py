"""Batch normalisation of tokens natively in float32, for `heads.pooling.TokenBatchNorm`.

Shape legend: B samples, N tokens, C channels.
"""

from __future__ import annotations

import paddle

from sot_paddle.ops.dispatch import run, runs_natively


def takes(x: paddle.Tensor, weight: paddle.Tensor, mask: paddle.Tensor | None) -> bool:
    """Whether tokens (B, N, C) of this kind are normalised natively.

    Args:
        x: tokens.
        weight: the scale that is learned.
        mask: None, or (B, N).
    """
    fits = x.ndim == 3 and weight.dtype == x.dtype
    return fits and (mask is None or mask.shape == x.shape[:2]) and runs_natively(x)


def normalize(
    x: paddle.Tensor,
    weight: paddle.Tensor,
    bias: paddle.Tensor,
    epsilon: float,
    mask: paddle.Tensor | None,
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Normalise by the statistics of all (valid) tokens.

    Args:
        x: (B, N, C), float32 on the CPU.
        weight: (C,), likewise.
        bias: (C,), likewise.
        epsilon: added to the variance.
        mask: (B, N), true where valid, or None.

    Returns:
        (B, N, C); mean and biased variance (C,), without a gradient. Gradient: smooth; once only.
    """
    weights = None if mask is None else mask.astype("float32")
    y, mean, var = run("sot_token_norm", x, weight, bias, weights, epsilon)
    return y, mean.detach(), var.detach()


def shift(
    x: paddle.Tensor, mean: paddle.Tensor, scale: paddle.Tensor, bias: paddle.Tensor
) -> paddle.Tensor:
    """``(x - mean) scale + bias`` for each channel, float32 on the CPU.

    Args:
        x: (B, N, C).
        mean: (C,), without a gradient.
        scale: (C,).
        bias: (C,).

    Returns:
        (B, N, C). Gradient: bilinear; once only.
    """
    return run("sot_token_shift", x, mean, scale, bias)
