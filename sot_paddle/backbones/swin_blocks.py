"""Windows of attention for Swin transformers: partition, shift, relative positions, merging.

Shape legend: B samples, H x W tokens (N = H W), C channels, w side of a window, h heads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.layers import Attention, LayerNorm, PreNormBlock
from sot_paddle.heads.pooling import linear
from sot_paddle.vision_config import SwinConfig

MASKED = -100.0
"""Added to the scores between tokens that the cyclic shift brought together."""


def relative_position_index(window: int) -> np.ndarray:
    """Row of the bias table for each pair of tokens in a window, (w^2, w^2) int64.

    It is ``(dy + w - 1) (2 w - 1) + dx + w - 1`` with (dy, dx) the first token's position less the
    second's.
    """
    y, x = np.divmod(np.arange(window * window), window)
    dy, dx = y[:, None] - y[None, :], x[:, None] - x[None, :]
    return (dy + window - 1) * (2 * window - 1) + dx + window - 1


def shift_mask(size: int, window: int, shift: int) -> np.ndarray:
    """Scores to add so that only tokens that were neighbours before the shift see each other.

    Args:
        size: side of the (padded) grid in tokens, a multiple of ``window``.
        window: w.
        shift: tokens the grid was rolled by, 0 < shift < w.

    Returns:
        (windows, w^2, w^2) float64, 0 or -100.
    """
    wrapped = np.arange(size) >= size - shift  # only the last window has both
    region = 2 * wrapped[:, None] + wrapped[None, :]  # (size, size)
    count = size // window
    regions = region.reshape(count, window, count, window).transpose(0, 2, 1, 3)
    regions = regions.reshape(count * count, window * window)
    return np.where(regions[:, :, None] != regions[:, None, :], MASKED, 0.0)


class WindowAttention(Attention):
    """Attention within windows of side w, with a learned bias for each relative position.

    ``mask`` (windows, w^2, w^2), or None, is added to the scores of each window.
    """

    def __init__(
        self, dim: int, num_heads: int, *, window: int, mask: np.ndarray | None, **options: Any
    ) -> None:
        super().__init__(dim, num_heads, **options)
        self.window, self.area = window, window * window
        self.relative_position_bias_table = self.create_parameter(
            [(2 * window - 1) ** 2, num_heads], default_initializer=nn.initializer.Normal(0.0, 0.02)
        )
        # PADDLE: Layer.to(dtype) casts integer buffers, and every tensor set on a Layer is one
        self._index = (paddle.to_tensor(relative_position_index(window).reshape(-1)),)
        if mask is not None:
            mask = paddle.to_tensor(mask[None], dtype=paddle.get_default_dtype())
        self.register_buffer("shift_mask", mask, persistable=False)  # (1, windows, w^2, w^2)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Attend within windows: (B windows, w^2, C) to the same shape, window index inner."""
        table = self.relative_position_bias_table
        bias = paddle.index_select(table, self._index[0], axis=0)  # (w^4, h)
        bias = bias.reshape([self.area, self.area, -1]).transpose([2, 0, 1]).unsqueeze(1)
        if self.shift_mask is not None:
            bias = bias + self.shift_mask.astype(bias.dtype)  # (h, windows, w^2, w^2)
        return super().forward(x, bias)


class SwinBlock(PreNormBlock):
    """Pre-norm block whose attention stays within (shifted) windows.

    A window larger than the grid shrinks to it and is not shifted. A grid that is no multiple
    of the window is padded with zero tokens, after the shift, as in timm; they are attended to.

    Args:
        size: side of the token grid.
        shifted: shift the windows by half of their side.
    """

    def __init__(
        self,
        config: SwinConfig,
        *,
        dim: int,
        num_heads: int,
        size: int,
        shifted: bool,
        drop_path: float,
    ) -> None:
        window = min(config.window_size, size)
        shift = window // 2 if shifted and size > config.window_size else 0
        padding = -size % window
        attn = WindowAttention(
            dim,
            num_heads,
            window=window,
            mask=shift_mask(size + padding, window, shift) if shift else None,
            qkv_bias=config.qkv_bias,
            attn_drop=config.attn_drop_rate,
            proj_drop=config.drop_rate,
        )
        super().__init__(config, attn, dim=dim, drop_path=drop_path)
        self.size, self.window, self.shift, self.padding = size, window, shift, padding

    def attend(self, x: paddle.Tensor) -> paddle.Tensor:
        """Attend within windows of (B, N, C), N the grid row-major."""
        batch, length, dim = x.shape
        size, window, shift = self.size, self.window, self.shift
        x = x.reshape([batch, size, size, dim])
        if shift:
            x = paddle.roll(x, [-shift, -shift], axis=[1, 2])
        if self.padding:
            x = F.pad(x, [0, 0, 0, self.padding, 0, self.padding, 0, 0])  # of (B, H, W, C)
        x = from_windows(self.attn(to_windows(x, window)), size + self.padding)
        if self.padding:
            x = x[:, :size, :size]
        if shift:
            x = paddle.roll(x, [shift, shift], axis=[1, 2])
        return x.reshape([batch, length, dim])


def to_windows(x: paddle.Tensor, window: int) -> paddle.Tensor:
    """Cut (B, H, W, C) into windows (B windows, w^2, C), row-major, all of a sample together.

    PADDLE: the same as a transposition of (B, H / w, w, W / w, w, C), at a thirtieth of its time on
    a CPU.
    """
    batch, height, width, dim = x.shape
    down, across = height // window, width // window
    x = x.reshape([batch, down, window, across, window * dim])
    columns = paddle.split(x, across, axis=3)  # each (B, down, w, 1, w C)
    x = paddle.concat(columns, axis=2)  # (B, down, across w, 1, w C)
    return x.reshape([-1, window * window, dim])


def from_windows(x: paddle.Tensor, size: int) -> paddle.Tensor:
    """Put windows (B windows, w^2, C) together again: (B, size, size, C)."""
    _, area, dim = x.shape
    window = math.isqrt(area)
    across = size // window
    x = x.reshape([-1, across, across * window, window * dim])
    columns = paddle.split(x, across, axis=2)  # each (B, down, w, w C)
    return paddle.concat(columns, axis=3).reshape([-1, size, size, dim])


class PatchMerging(nn.Layer):
    """Halve the grid and double the channels: 2 x 2 tokens side by side, norm, linear.

    The four tokens are ordered (0, 0), (1, 0), (0, 1), (1, 1) as (row, column), which is the order
    of timm and of the original. An odd grid, of side ``size`` before, is padded with zero tokens.
    """

    def __init__(self, dim: int, *, size: int, epsilon: float) -> None:
        super().__init__()
        self.size = size
        self.norm = LayerNorm(4 * dim, epsilon=epsilon)
        self.reduction = linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, N, C) to (B, N / 4, 2 C)."""
        dim = x.shape[-1]
        half = (self.size + 1) // 2
        x = x.reshape([-1, self.size, self.size, dim])
        if self.size % 2:
            x = F.pad(x, [0, 0, 0, 1, 0, 1, 0, 0])  # of (B, H, W, C)
        x = x.reshape([-1, 2, half, 2, dim])
        x = paddle.concat(paddle.split(x, 2, axis=1), axis=-1)  # (B H/2, 1, W/2, 2, 2 C)
        return self.reduction(self.norm(x.reshape([-1, half * half, 4 * dim])))
