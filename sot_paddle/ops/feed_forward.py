"""What follows attention in a layer of an encoder, in inference: fused, natively in float32."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.ops import bfloat16, gelu, layer_norm
from sot_paddle.ops.dispatch import run, runs_natively
from sot_paddle.ops.linear import replaced


def infers(x: paddle.Tensor, first: nn.Linear, second: nn.Linear) -> bool:
    """Whether :func:`feed_forward` takes this input and these layers here and now.

    Args:
        x: (..., C).
        first, second: of :func:`feed_forward`.

    Returns:
        False where gradients are kept, for a layer without a bias, for other precisions than
        float32, and where ``paddle.nn.functional`` holds another ``linear`` or ``gelu``.
    """
    tensors = (first.weight, second.weight, first.bias, second.bias)
    return (
        not paddle.is_grad_enabled()
        and (F.linear is bfloat16.linear or not replaced())
        and F.gelu is gelu.PLAIN
        and all(tensor is not None and tensor.dtype == x.dtype for tensor in tensors)
        and x.shape[-1:] == first.weight.shape[:1]
        and x.ndim > 1
        and 0 not in x.shape
        and runs_natively(x)
    )


def feed_forward(x: paddle.Tensor, first: nn.Linear, second: nn.Linear) -> paddle.Tensor:
    """``second(gelu(first(x)))`` where :func:`infers` holds; what lies between is written once.

    Args:
        x: (..., C).
        first: C to D.
        second: D to C'.

    Returns:
        (..., C'), without a gradient.
    """
    if F.linear is bfloat16.linear:
        return run(
            "sot_packed_feed_forward", x, first.weight, first.bias, second.weight, second.bias
        )
    inner = run("sot_gelu_of_sum", paddle.matmul(x, first.weight), first.bias)
    return run("sot_add_bias", paddle.matmul(inner, second.weight), second.bias)


def norm_of_sum(x: paddle.Tensor, residual: paddle.Tensor, norm: nn.LayerNorm) -> paddle.Tensor:
    """``norm(residual + x)``, without a gradient; natively where layer norm is.

    Args:
        x: (..., C).
        residual: the same shape.
        norm: Paddle's, over C, with weight and bias.

    Returns:
        (..., C).
    """
    if F.layer_norm is not layer_norm.PLAIN or norm.weight.dtype != x.dtype:
        return norm(residual + x)
    given = (norm.weight, norm.bias, norm._epsilon)
    return run("sot_layer_norm_of_sum", x, residual, *given)
