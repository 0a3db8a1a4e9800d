"""A linear layer whose bias is added, and its gradient summed, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops import bfloat16
from sot_paddle.ops.dispatch import run, runs_natively


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None) -> paddle.Tensor:
    """``x @ weight + bias``; the products are the framework's own, or those in bfloat16.

    Args:
        x: (..., C).
        weight: (C, D).
        bias: (D,) or None.

    Returns:
        (..., D), same dtype.

    Gradient: smooth; once only where it runs natively.
    """
    if (
        bias is None
        or bfloat16.is_chosen()
        or not runs_natively(x)
        or not x.dtype == weight.dtype == bias.dtype
        or not x.size
    ):
        return F.linear(x, weight, bias)
    return run("sot_add_bias", paddle.matmul(x, weight), bias)
