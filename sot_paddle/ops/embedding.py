"""Rows of a table, whose gradient is made natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops.dispatch import run, runs_natively


def embedding(ids: paddle.Tensor, weight: paddle.Tensor, padding: int | None) -> paddle.Tensor:
    """Rows ``ids`` of a table.

    Args:
        ids: any shape, whole numbers in [0, N).
        weight: (N, C).
        padding: a row that reads as zeros and gets no gradient, below 0 from the end; None: none.

    Returns:
        (..., C), dtype of the table.

    Raises:
        ValueError: an id is no row of the table.

    Gradient: the sums of the gradients of each row, zero for the others; once only where it runs
    natively.
    """
    if runs_natively(weight) and ids.dtype == paddle.int64 and ids.size:
        return run("sot_embedding", ids, weight, -1 if padding is None else padding % len(weight))
    return F.embedding(ids, weight, padding_idx=padding)
