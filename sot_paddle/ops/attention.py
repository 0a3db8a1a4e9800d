"""Scaled dot-product attention of several heads, natively in float32."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from sot_paddle.ops.dispatch import run, runs_natively


def can_attend(parts: Sequence[paddle.Tensor], bias: paddle.Tensor | None) -> bool:
    """Whether :func:`attention` takes these inputs here and now.

    Returns:
        False as well for queries and keys of different lengths and for a bias that is trained.
    """
    first = parts[0]
    return (
        runs_natively(first)
        and all(part.shape == first.shape and part.dtype == first.dtype for part in parts)
        and first.size > 0
        and (bias is None or _suits(bias, first))
    )


def _suits(bias: paddle.Tensor, part: paddle.Tensor) -> bool:
    trained = not bias.stop_gradient and paddle.is_grad_enabled()
    length = part.shape[1]
    square = bias.ndim == 4 and bias.shape[2] in (1, length) and bias.shape[3] == length
    return not trained and square and bias.dtype == part.dtype


def attention(
    parts: Sequence[paddle.Tensor],
    num_heads: int,
    *,
    scale: float,
    p: float,
    bias: paddle.Tensor | None = None,
    heads_first: bool = False,
) -> paddle.Tensor:
    """``dropout(softmax(scale q k^T + bias)) v`` of each head, the heads side by side.

    Dropout draws the mask that ``paddle.nn.functional.dropout`` would draw. Only where
    :func:`can_attend` holds.

    Args:
        parts: queries, keys and values, (B, S, C) each, or one (B, S, 3 C) with the three side by
            side; h heads of d = C / h channels.
        num_heads: h.
        scale: factor on the scores.
        bias: (B or 1, h or 1, S or 1, S); with ``heads_first`` (h or 1, w, S or 1, S), w a
            divisor of B, whose entry i belongs to the samples i, i + w, i + 2 w, ...
        p: probability to drop a weight, below 1.
        heads_first: the mask is drawn for (h, B, S, S) instead of (B, h, S, S).

    Returns:
        (B, S, C).

    Gradient: of the parts, smooth; once only.
    """
    return run("sot_attention", list(parts), bias, num_heads, scale, p, heads_first)[0]
