"""Layer normalisation over the last axis, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops.dispatch import run, runs_natively


def layer_norm(
    x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor, epsilon: float
) -> paddle.Tensor:
    """``(x - mean) / sqrt(var + epsilon) * weight + bias`` with the biased variance of each row.

    Args:
        x: (..., C).
        weight: (C,).
        bias: (C,).
        epsilon: added to the variance.

    Returns:
        (..., C), same dtype.

    Gradient: smooth for epsilon above 0; once only where it runs natively.
    """
    if (
        runs_natively(x, weight, bias)
        and x.shape[-1:] == weight.shape == bias.shape
        and min(x.ndim - 1, x.size) > 0
    ):
        return run("sot_layer_norm", x, weight, bias, epsilon)[0]
    return F.layer_norm(x, weight.shape, weight, bias, epsilon)
