"""Functions of Paddle's layers, natively in float32; the framework's where an operator must not.

The gradient of what ran natively can be taken once.
"""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops import bfloat16, native
from sot_paddle.ops.dispatch import run, runs_natively

LARGEST = 1.0 - 2.0**-24
"""Rate up to which the operators drop: above it 1 - p is 0 in float32."""


def may_drop(p: float) -> bool:
    """Whether an operator may drop at a rate, 0 out of training, here and now."""
    return p == 0.0 or (native.masks and 0.0 < p <= LARGEST)


def dropout(x: paddle.Tensor, p: float, *, training: bool) -> paddle.Tensor:
    """``x / (1 - p)`` with probability ``1 - p``, else 0; ``x`` itself out of training.

    The mask is the one that ``paddle.nn.functional.dropout`` would draw from the generator that
    ``paddle.seed`` starts, which is left where that function would leave it.

    Args:
        x: any shape.
        p: probability to drop, in [0, 1].

    Gradient: ``mask / (1 - p)``.
    """
    rate = p if training else 0.0
    if not (may_drop(rate) and runs_natively(x)):
        return F.dropout(x, p=p, training=training)
    return run("sot_dropout", x, p)[0] if rate > 0.0 else x


def embedding(ids: paddle.Tensor, weight: paddle.Tensor, padding: int | None) -> paddle.Tensor:
    """Rows (..., C) of a table (N, C), whose gradient alone is made natively.

    Args:
        ids: (...), whole numbers in [0, N).
        padding: a row that reads as zeros and gets no gradient, below 0 from the end; None: none.

    Raises:
        ValueError: an id is no row of the table.

    Gradient: the sums of the gradients of each row, zero for the others.
    """
    if runs_natively(weight) and ids.dtype == paddle.int64 and ids.size:
        return run("sot_embedding", ids, weight, -1 if padding is None else padding % len(weight))
    return F.embedding(ids, weight, padding_idx=padding)


def gelu(x: paddle.Tensor) -> paddle.Tensor:
    """``x Phi(x)`` with the distribution function of the normal distribution; any shape.

    Gradient: ``Phi(x) + x phi(x)``, smooth.
    """
    if not runs_natively(x):
        return F.gelu(x)
    return run("sot_gelu", x, paddle.is_grad_enabled() and not x.stop_gradient)[0]


def layer_norm(
    x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor, epsilon: float
) -> paddle.Tensor:
    """``(x - mean) / sqrt(var + epsilon) * weight + bias`` with the biased variance of each row.

    Maps x (..., C), weight and bias (C,) to (..., C). Gradient: smooth for epsilon above 0.
    """
    if (
        runs_natively(x, weight, bias)
        and x.shape[-1:] == weight.shape == bias.shape
        and min(x.ndim - 1, x.size) > 0
    ):
        return run("sot_layer_norm", x, weight, bias, epsilon)[0]
    return F.layer_norm(x, weight.shape, weight, bias, epsilon)


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None) -> paddle.Tensor:
    """``x @ weight + bias``; the bias is added, and its gradient summed, natively.

    Maps x (..., C), weight (C, D) and bias (D,) or None to (..., D). The products are the
    framework's own, or those in bfloat16. Gradient: smooth.
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
