"""Linear layers whose products take bfloat16 factors and add up in float32, on request."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F
from paddle.nn.functional.common import linear as paddle_linear

from sot_paddle.ops import build
from sot_paddle.ops.dispatch import run, runs_natively
from sot_paddle.ops.processor import processor

INSTRUCTIONS = ("amx_bf16", "avx512_bf16")
"""Flags of a processor that multiplies bfloat16; either will do."""


def why_not() -> str:
    """What hinders products in bfloat16 here, in a few words; "" when nothing does."""
    if not set(INSTRUCTIONS) & processor()[1]:
        return f"this processor has no instructions for them ({' or '.join(INSTRUCTIONS)})"
    if reason := build.why_not():
        return f"the native operators are not used: {reason}"
    try:
        number = paddle.ones([1, 1], "float32")
        run("sot_bfloat16_linear", number, number, number[0])
        run("sot_packed_feed_forward", number, number, number[0], number, number[0])
    except (OSError, RuntimeError) as error:  # the operator's, in Paddle's words
        return str(error).strip().splitlines()[-1].strip()
    return ""


def linear(
    x: paddle.Tensor,
    weight: paddle.Tensor,
    bias: paddle.Tensor | None = None,
    name: str | None = None,
) -> paddle.Tensor:
    """``x @ weight + bias``, its three products with factors rounded to bfloat16.

    Args:
        x: (..., C).
        weight: (C, D).
        bias: (D,) or None; it is added, and its gradient summed, in float32.

    Returns:
        (..., D), float32. Other precisions, a GPU and traced graphs are left to
        ``paddle.nn.functional.linear``. Without gradients a parameter is kept rounded and packed,
        in half of its memory, until it is trained or gone; each call compares a sum of its bits,
        so a weight that is set, loaded or trained is packed again.

    Gradient: smooth; once only.
    """
    fits = x.dtype == weight.dtype and x.ndim > 1 and x.shape[-1:] == weight.shape[:1]
    if not fits or not runs_natively(x) or not x.size or not weight.size:
        return paddle_linear(x, weight, bias, name)
    bias = paddle.zeros(weight.shape[1:], x.dtype) if bias is None else bias
    is_kept = weight.persistable and not paddle.is_grad_enabled()
    return run("sot_packed_linear" if is_kept else "sot_bfloat16_linear", x, weight, bias)


def is_chosen() -> bool:
    """Whether linear layers multiply in bfloat16."""
    return F.linear is linear


def choose_products(precision: str) -> None:
    """Have linear layers multiply in ``"float32"``, as Paddle does, or ``"bf16"`` from now on.

    Raises:
        ValueError: bfloat16 on a machine that cannot, or on a GPU.
    """
    F.linear = paddle_linear
    if precision == "float32":
        return
    if not paddle.get_device().startswith("cpu"):
        raise ValueError("cpu_precision bf16 is for the CPU: use the GPU's mixed precision there")
    if reason := why_not():
        raise ValueError(f"cpu_precision bf16: {reason}; leave it at float32")
    F.linear = linear
