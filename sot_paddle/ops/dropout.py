"""Dropout with Paddle's own masks, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops import native
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
        training: whether anything is dropped.

    Returns:
        The same shape and dtype.

    Gradient: ``mask / (1 - p)``; once only where it runs natively.
    """
    rate = p if training else 0.0
    if not (may_drop(rate) and runs_natively(x)):
        return F.dropout(x, p=p, training=training)
    return run("sot_dropout", x, p)[0] if rate > 0.0 else x
