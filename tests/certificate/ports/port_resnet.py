"""A ResNet-D as timm builds it (deep stem, average pool before the projection), for Paddle.

Shapes: B images, C channels, H x W pixels.
"""

from __future__ import annotations

import paddle
from paddle import nn


def conv3(fan_in: int, fan_out: int, stride: int = 1) -> nn.Conv2D:
    """A 3 x 3 convolution without bias."""
    return nn.Conv2D(fan_in, fan_out, 3, stride=stride, padding=1, bias_attr=False)


class BasicBlock(nn.Layer):
    """Two convolutions with batch norm and a shortcut."""

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3(fan_in, fan_out, stride)
        self.bn1 = nn.BatchNorm2D(fan_out)
        self.act1 = nn.ReLU()
        self.conv2 = conv3(fan_out, fan_out)
        self.bn2 = nn.BatchNorm2D(fan_out)
        self.act2 = nn.ReLU()
        self.downsample = None
        if stride > 1 or fan_in != fan_out:
            pool = nn.AvgPool2D(2, stride, ceil_mode=True) if stride > 1 else nn.Identity()
            project = nn.Conv2D(fan_in, fan_out, 1, bias_attr=False)
            self.downsample = nn.Sequential(pool, project, nn.BatchNorm2D(fan_out))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, C, H, W) to (B, C', H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return self.act2(x + shortcut)


class ResNet(nn.Layer):
    """Deep stem, max pool, stages of basic blocks, mean, classifier."""

    def __init__(self, stem: int, channels: tuple[int, ...], depths: tuple[int, ...], classes: int):
        super().__init__()
        tier, width = 3 * (stem // 4), 2 * stem
        self.conv1 = nn.Sequential(
            conv3(3, tier, 2),
            nn.BatchNorm2D(tier),
            nn.ReLU(),
            conv3(tier, stem),
            nn.BatchNorm2D(stem),
            nn.ReLU(),
            conv3(stem, width),
        )
        self.bn1 = nn.BatchNorm2D(width)
        self.act1 = nn.ReLU()
        self.maxpool = nn.MaxPool2D(3, stride=2, padding=1)
        for number, (fan_out, depth) in enumerate(zip(channels, depths, strict=True), 1):
            blocks = []
            for i in range(depth):
                blocks.append(BasicBlock(width, fan_out, 2 if i == 0 and number > 1 else 1))
                width = fan_out
            self.add_sublayer(f"layer{number}", nn.Sequential(*blocks))
        self.stages = [f"layer{number}" for number in range(1, len(depths) + 1)]
        self.fc = nn.Linear(width, classes)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Images (B, 3, H, W) to scores (B, K)."""
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for name in self.stages:
            x = getattr(self, name)(x)
        return self.fc(x.mean(axis=[2, 3]))
