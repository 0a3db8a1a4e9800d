"""GELU by the error function, natively in float32."""

from __future__ import annotations

import paddle
from paddle.nn import functional as F

from sot_paddle.ops.dispatch import run, runs_natively

PLAIN = F.gelu
"""Paddle's own."""


def gelu(x: paddle.Tensor) -> paddle.Tensor:
    """``x Phi(x)`` with the distribution function of the normal distribution.

    Args:
        x: any shape.

    Returns:
        The same shape and dtype. Where ``paddle.nn.functional.gelu`` was replaced by another
        function (the suite tries other activations so), that one is called.

    Gradient: ``Phi(x) + x phi(x)``, smooth; once only where it runs natively.
    """
    if F.gelu is PLAIN and runs_natively(x):
        return run("sot_gelu", x)
    return F.gelu(x)
