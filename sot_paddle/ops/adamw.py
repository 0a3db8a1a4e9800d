"""A step of AdamW in one pass over a parameter's memory, natively in float32."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from sot_paddle.functional import at_least_float32
from sot_paddle.ops.dispatch import run, runs_natively


def updates_natively(tensors: Sequence[paddle.Tensor]) -> bool:
    """Whether a parameter, its gradient, two moments and their powers can be updated natively.

    Returns:
        False where one is sparse, strided, of another precision or on another device, and where
        the operators do not compute.
    """
    return all(
        tensor.is_dense() and tensor.is_contiguous() and tensor.dtype == paddle.float32
        for tensor in tensors
    ) and all(map(runs_natively, tensors[:2]))


def update(
    tensors: Sequence[paddle.Tensor],
    factor: paddle.Tensor | None,
    *,
    betas: tuple[float, float],
    epsilon: float,
    lr: float,
    before: float,
    after: float,
) -> None:
    """Take a step in place, natively: call it where `updates_natively` says so.

    ``m = b1 m + (1 - b1) f g``, ``v = b2 v + (1 - b2) (f g)^2`` and ``p = after (before p -
    lr sqrt(1 - b2^t) / (1 - b1^t)  m / (sqrt(v) + epsilon sqrt(1 - b2^t)))``; the powers then
    become those of the next step. The gradient is left as it is.

    Args:
        tensors: parameter, gradient, moments m and v of one shape, powers b1^t and b2^t (1,).
        factor: (1,), the clipping's f, or None: 1.
        betas: b1, b2.
        epsilon: added to sqrt(v), rescaled as in Paddle's kernel.
        before: what decay leaves of p before the step.
        after: what it leaves after it.
    """
    run("sot_adamw", *tensors, factor, *betas, epsilon, lr, before, after)
    tensors[0]._bump_inplace_version()  # a graph that still needs the old values says so


def sum_of_squares(gradient: paddle.Tensor) -> paddle.Tensor:
    """The sum of a tensor's squares, (1,), in float32 at least; natively it is made in double."""
    if gradient.is_dense() and runs_natively(gradient):
        return run("sot_sum_of_squares", gradient)
    return at_least_float32(gradient).square().sum().reshape([1])
