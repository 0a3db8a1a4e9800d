"""A linear layer whose bias is added, and its gradient summed, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F
from paddle.nn.functional import common

from sot_paddle.ops.dispatch import run, runs_natively

PLAIN = common.linear
"""Paddle's own."""
_HANDS_ON = "paddlenlp.transformers.deepseek_v2.fp8_linear"
"""PADDLE: this module of paddlenlp, when it is imported, puts a function in the place of Paddle's
that hands on to it whatever has more than 8 bits."""


def replaced() -> bool:
    """Whether ``paddle.nn.functional.linear`` computes something else than Paddle's own."""
    return F.linear is not PLAIN and F.linear.__module__ != _HANDS_ON


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
        or replaced()
        or not runs_natively(x)
        or not x.dtype == weight.dtype == bias.dtype
        or not x.size
    ):
        return F.linear(x, weight, bias)
    return run("sot_add_bias", paddle.matmul(x, weight), bias)
