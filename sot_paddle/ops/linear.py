"""A linear layer whose bias is added, and its gradient summed, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops.dispatch import run, runs_natively

PLAIN = F.linear
"""Paddle's own."""


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None) -> paddle.Tensor:
    """``x @ weight + bias``; the products are the framework's own.

    Args:
        x: (..., C).
        weight: (C, D).
        bias: (D,) or None.

    Returns:
        (..., D), same dtype. Where ``paddle.nn.functional.linear`` was replaced by another
        function, that one is called.

    Gradient: smooth; once only where it runs natively.
    """
    if (
        bias is None
        or F.linear is not PLAIN
        or not runs_natively(x)
        or not x.dtype == weight.dtype == bias.dtype
        or not x.size
    ):
        return F.linear(x, weight, bias)
    return run("sot_add_bias", paddle.matmul(x, weight), bias)
