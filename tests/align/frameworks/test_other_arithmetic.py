"""Paddle's functions computed by PyTorch: their gradients under every way to ask for one."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn

from align.frameworks.other_arithmetic import by_pytorch
from align.frameworks.watched_calls import watched_in


def test_a_gradient_asked_of_paddle_grad_passes_two_functions_computed_by_pytorch() -> None:
    x = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3)), stop_gradient=False)
    with watched_in(nn.Layer(), by_pytorch(["tanh", "sum"])):
        (gradient,) = paddle.grad(paddle.sum(paddle.tanh(x * x)), [x])
    numbers = x.numpy()
    expected = 2 * numbers / np.cosh(numbers**2) ** 2
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)
