"""A small U-shaped segmentation network: group norm, PReLU, pooling, upsampling, for Paddle.

Shapes: B images, C channels, H x W pixels, K classes.
"""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F


class Segmenter(nn.Layer):
    """Down by pooling, up by a transposed convolution and by interpolation, joined by channels."""

    def __init__(self, width: int, groups: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, width, 3, padding=1)
        self.norm = nn.GroupNorm(groups, width)
        self.act = nn.PReLU(width)
        self.pool = nn.AvgPool2D(3, stride=2, padding=1, exclusive=False)
        self.deep = nn.Conv2D(width, 2 * width, 3, padding=2, dilation=2, groups=groups)
        self.up = nn.Conv2DTranspose(2 * width, width, 3, stride=2, padding=1)
        self.score = nn.Conv2D(2 * width, classes, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Images (B, 3, H, W) to scores (B, K, 2 H, 2 W)."""
        fine = self.act(self.norm(self.stem(x)))
        coarse = F.silu(self.deep(self.pool(fine)))
        joined = paddle.concat([fine, self.up(coarse)], axis=1)
        size = [2 * joined.shape[2], 2 * joined.shape[3]]
        return F.interpolate(self.score(joined), size=size, mode="bilinear", align_corners=False)
