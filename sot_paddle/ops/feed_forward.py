"""What follows attention in a layer of an encoder: fused, natively in float32."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.ops import bfloat16, gelu
from sot_paddle.ops.dispatch import run, runs_natively
from sot_paddle.ops.dropout import dropout
from sot_paddle.ops.linear import linear


def can_run(x: paddle.Tensor, first: nn.Linear, second: nn.Linear) -> bool:
    """Whether :func:`feed_forward` computes on (..., C) with these layers here and now.

    Returns:
        False for a layer without a bias and for other precisions than float32.
    """
    return (
        runs_natively(x, first.weight, second.weight, first.bias, second.bias)
        and x.shape[-1:] == first.weight.shape[:1]
        and x.ndim > 1
        and 0 not in x.shape
    )


def feed_forward(
    x: paddle.Tensor, first: nn.Linear, second: nn.Linear, drop: nn.Dropout
) -> paddle.Tensor:
    """``second(drop(gelu(first(x))))`` where :func:`can_run` holds: bias and GELU are one pass.

    Args:
        x: (..., C).
        first: C to D.
        second: D to C'.
        drop: its rate below 1.

    Returns:
        (..., C'). Gradient: as of the layers, to the same bits; once only.
    """
    p, graded = _rate(drop), paddle.is_grad_enabled()
    if bfloat16.is_chosen():
        if not graded and p == 0.0:
            weights = (first.weight, first.bias, second.weight, second.bias)
            return run("sot_packed_feed_forward", x, *weights)
        inner = gelu.gelu(F.linear(x, first.weight, first.bias))
    else:
        inner = run("sot_gelu_of_sum", paddle.matmul(x, first.weight), first.bias, graded)[0]
    return linear(dropout(inner, p, training=True), second.weight, second.bias)


def norm_of_sum(
    x: paddle.Tensor, residual: paddle.Tensor, norm: nn.LayerNorm, drop: nn.Dropout
) -> paddle.Tensor:
    """``norm(residual + drop(x))`` where :func:`can_run` holds, in one pass.

    Args:
        x: (..., C).
        residual: the same shape.
        norm: Paddle's, over C, with weight and bias.
        drop: its rate below 1; the mask is the one that it would draw.

    Returns:
        (..., C). Gradient: as of the layers, to the same bits; once only.
    """
    if norm.weight.dtype != x.dtype:
        return norm(residual + drop(x))
    options = (norm._epsilon, _rate(drop), paddle.is_grad_enabled())
    return run("sot_layer_norm_of_sum", x, residual, norm.weight, norm.bias, *options)[0]


def _rate(drop: nn.Dropout) -> float:
    return float(drop.p) if drop.training else 0.0
