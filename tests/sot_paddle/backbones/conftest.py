"""Tiny vision models."""

from __future__ import annotations

from collections.abc import Callable

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


@pytest.fixture
def tiny_vision() -> Callable[..., paddle.nn.Layer]:
    """Build a vision model of width 12 (ViT) or 8 (Swin) with three classes."""

    def build(name: str, num_classes: int = 3, **options):
        sizes = TINY_SWIN if name.startswith("swin") else TINY_VIT
        return create_model(name, num_classes, **{**sizes, **TINY_HEAD, **options})

    return build
