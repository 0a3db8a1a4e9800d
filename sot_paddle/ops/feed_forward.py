"""What follows attention in a layer of an encoder: fused, natively in float32."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.ops import bfloat16, gelu, layer_norm
from sot_paddle.ops.dispatch import run, runs_natively
from sot_paddle.ops.dropout import draws_plainly, dropout
from sot_paddle.ops.linear import linear, replaced


def fuses(x: paddle.Tensor, first: nn.Linear, second: nn.Linear) -> bool:
    """Whether :func:`feed_forward` takes this input and these layers here and now.

    Args:
        x: (..., C).
        first, second: of :func:`feed_forward`.

    Returns:
        False for a layer without a bias, for other precisions than float32, and where
        ``paddle.nn.functional`` holds another ``linear`` or ``gelu``.
    """
    tensors = (first.weight, second.weight, first.bias, second.bias)
    return (
        (F.linear is bfloat16.linear or not replaced())
        and F.gelu is gelu.PLAIN
        and all(tensor is not None and tensor.dtype == x.dtype for tensor in tensors)
        and x.shape[-1:] == first.weight.shape[:1]
        and x.ndim > 1
        and 0 not in x.shape
        and runs_natively(x)
    )


def feed_forward(
    x: paddle.Tensor, first: nn.Linear, second: nn.Linear, drop: nn.Dropout
) -> paddle.Tensor:
    """``second(drop(gelu(first(x))))`` where :func:`fuses` holds: bias and GELU are one pass.

    Args:
        x: (..., C).
        first: C to D.
        second: D to C'.
        drop: its rate below 1.

    Returns:
        (..., C'). Gradient: as of the layers, to the same bits; once only.
    """
    p, graded = _rate(drop), paddle.is_grad_enabled()
    if F.linear is bfloat16.linear:
        if not graded and p == 0.0:
            given = (first.weight, first.bias, second.weight, second.bias)
            return run("sot_packed_feed_forward", x, *given)
        inner = gelu.gelu(F.linear(x, first.weight, first.bias))
    else:
        inner = run("sot_gelu_of_sum", paddle.matmul(x, first.weight), first.bias, graded)[0]
    return linear(dropout(inner, p, training=True), second.weight, second.bias)


def norm_of_sum(
    x: paddle.Tensor, residual: paddle.Tensor, norm: nn.LayerNorm, drop: nn.Dropout
) -> paddle.Tensor:
    """``norm(residual + drop(x))`` where :func:`fuses` holds; one pass unless Paddle's is replaced.

    Args:
        x: (..., C).
        residual: the same shape.
        norm: Paddle's, over C, with weight and bias.
        drop: its rate below 1; the mask is the one that it would draw.

    Returns:
        (..., C). Where ``paddle.nn.functional`` holds another ``layer_norm`` or ``dropout``, or a
        program's seed draws the masks, the layers are called. Gradient: as of the layers, to the
        same bits; once only where it is one pass.
    """
    if F.layer_norm is not layer_norm.PLAIN or draws_plainly() or norm.weight.dtype != x.dtype:
        return norm(residual + drop(x))
    given = (norm.weight, norm.bias, norm._epsilon, _rate(drop), paddle.is_grad_enabled())
    return run("sot_layer_norm_of_sum", x, residual, *given)[0]


def _rate(drop: nn.Dropout) -> float:
    return float(drop.p) if drop.training else 0.0
