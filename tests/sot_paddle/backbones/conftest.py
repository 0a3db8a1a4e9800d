"""Tiny vision models, and gradients of parameters checked along random directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest

from sot_paddle.registry import create_model

TINY_HEAD = {"head_num_heads": 2, "wr_dim": 4, "qkv_dim": 3, "q_dim": 7, "k_dim": 5}
TINY_VIT = {"img_size": 16, "embed_dim": 12, "depth": 2, "num_heads": 3, "patch_size": 4}
TINY_SWIN = {
    "img_size": 24,
    "embed_dim": 8,
    "depths": (2, 1),
    "num_heads": (2, 4),
    "window_size": 2,
}
STEP = 1e-6


@pytest.fixture
def tiny_vision() -> Callable[..., paddle.nn.Layer]:
    """Build a vision model of width 12 (ViT) or 8 (Swin) with three classes."""

    def build(name: str, num_classes: int = 3, **options):
        sizes = TINY_SWIN if name.startswith("swin") else TINY_VIT
        return create_model(name, num_classes, **{**sizes, **TINY_HEAD, **options})

    return build


@pytest.fixture
def check_parameters() -> Callable[..., None]:
    """Compare gradients of all parameters with central differences along one direction each."""

    def check(model: paddle.nn.Layer, loss: Callable, tolerance: float = 1e-7) -> None:
        buffers = {name: buffer.numpy() for name, buffer in model.named_buffers()}
        loss().backward()
        generator = np.random.default_rng(5)
        found = 0
        for name, parameter in model.named_parameters():
            value, gradient = parameter.numpy(), parameter.grad
            gradient = np.zeros(value.shape) if gradient is None else gradient.numpy()
            direction = generator.normal(size=value.shape)
            direction /= np.linalg.norm(direction)  # short steps cross few kinks of ReLU
            sides = []
            for sign in (1.0, -1.0):
                moved = paddle.to_tensor(value + sign * STEP * direction)
                paddle.assign(moved, output=parameter)
                with paddle.no_grad():
                    sides.append(float(loss()))
            paddle.assign(paddle.to_tensor(value), output=parameter)
            numeric = (sides[0] - sides[1]) / (2 * STEP)
            analytic = float((gradient * direction).sum())
            scale = max(1.0, abs(numeric))
            assert abs(numeric - analytic) <= tolerance * scale, (name, numeric, analytic)
            found += abs(numeric) > 1e-6
        assert found > 5, "gradients of zero would prove nothing"
        for name, buffer in model.named_buffers():
            paddle.assign(paddle.to_tensor(buffers[name]), output=buffer)

    return check
