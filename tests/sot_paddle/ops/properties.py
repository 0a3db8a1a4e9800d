"""What holds of every native operator that trains; no tests here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle
import pytest


def same(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Arrays are equal, each to its own."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_one_derivative(y: paddle.Tensor, x: paddle.Tensor) -> None:
    """The second derivative of ``y`` by ``x`` is refused, with what to do instead."""
    (first,) = paddle.grad((y * y).sum(), x, create_graph=True)
    with pytest.raises(OSError, match="SOT_PADDLE_NATIVE=0 for second derivatives"):
        paddle.grad((first * first).sum(), x)


def walked_twice(
    total: paddle.Tensor, tensors: Sequence[paddle.Tensor], rtol: float = 1e-6, atol: float = 0.0
) -> list[np.ndarray]:
    """Gradients of a sum; a second walk back through the same graph doubles them."""
    total.backward(retain_graph=True)
    once = [tensor.grad.numpy().copy() for tensor in tensors]
    total.backward()
    for tensor, first in zip(tensors, once, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), 2.0 * first, rtol=rtol, atol=atol)
    return once


def assert_same_in_threads(
    threads: Callable[[int], None],
    function: Callable[[], Sequence[np.ndarray]],
    counts: Sequence[int] = (1, 3),
) -> None:
    """Arrays have the same bits whatever the number of threads."""
    found = []
    for count in counts:
        threads(count)
        found.append(function())
    for other in found[1:]:
        same(other, found[0])
