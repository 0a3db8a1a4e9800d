"""GELU by the error function, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops.dispatch import run, runs_natively


def gelu(x: paddle.Tensor) -> paddle.Tensor:
    """``x Phi(x)`` with the distribution function of the normal distribution.

    Args:
        x: any shape.

    Returns:
        The same shape and dtype.

    Gradient: ``Phi(x) + x phi(x)``, smooth; once only where it runs natively.
    """
    if not runs_natively(x):
        return F.gelu(x)
    return run("sot_gelu", x, paddle.is_grad_enabled() and not x.stop_gradient)[0]
