"""Building blocks of the token embeddings: images (B, C, H, W) to images.

Source of all: A.7. Shape legend: B samples, C channels, H x W pixels, P = H W positions.
"""

from __future__ import annotations

from collections.abc import Callable

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.layers import BatchNorm2D, conv
from sot_paddle.ops.dispatch import is_plain
from sot_paddle.ops.images import dense_block

GROWTH = 16
BOTTLENECK = 2 * GROWTH
"""Channels that a dense layer adds, and those between its two convolutions."""

TIGHT = {"epsilon": 1e-3, "momentum": 0.99}
"""Batch norms of the ResNet and Non-local embeddings (torch's momentum 0.01)."""


class ConvNorm(nn.Layer):
    """Convolution, batch normalisation with the keywords ``norm`` and, if asked for, ReLU."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = False,
        relu: bool = False,
        norm: dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.conv = conv(in_dim, out_dim, kernel, stride=stride, padding=padding, bias=bias)
        self.norm = BatchNorm2D(out_dim, **(norm or {}))
        self.relu = relu

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, C, H, W) to (B, out_dim, H / stride, W / stride)."""
        normed = self.norm(self.conv(x))
        return F.relu(normed) if self.relu else normed


class DenseLayer(nn.Layer):
    """ReLU, 1x1 convolution, ReLU, 3x3 convolution to 16 new channels.

    QUIRK: under the timm that the original pins, the "norm" of its dense layers is a bare ReLU,
    so there is no batch normalisation here; ``batch_norm=True`` puts one before each ReLU.
    """

    def __init__(self, in_dim: int, *, batch_norm: bool) -> None:
        super().__init__()
        self.norm1: Callable = BatchNorm2D(in_dim) if batch_norm else nn.Identity()
        self.conv1 = conv(in_dim, BOTTLENECK, 1)
        self.norm2: Callable = BatchNorm2D(BOTTLENECK) if batch_norm else nn.Identity()
        self.conv2 = conv(BOTTLENECK, GROWTH, 3, padding=1)

    def forward(self, features: list[paddle.Tensor]) -> paddle.Tensor:
        """Map the features so far, each (B, C_i, H, W), to (B, 16, H, W)."""
        x = paddle.concat(features, axis=1)  # (B, sum C_i, H, W)
        x = self.conv1(F.relu(self.norm1(x)))  # (B, 32, H, W)
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.Layer):
    """Dense layers of 16 channels, each of which sees the features of all before it."""

    def __init__(self, in_dim: int, *, num_layers: int = 6, batch_norm: bool = False) -> None:
        super().__init__()
        self.out_dim = in_dim + num_layers * GROWTH
        self.layers = nn.LayerList(
            DenseLayer(in_dim + index * GROWTH, batch_norm=batch_norm)
            for index in range(num_layers)
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, C, H, W) to (B, C + 16 layers, H, W), the input's channels first."""
        convs = [conv for layer in self.layers for conv in (layer.conv1, layer.conv2)]
        norms = [norm for layer in self.layers for norm in (layer.norm1, layer.norm2)]
        plain = is_plain(DenseLayer, self.layers) and is_plain(nn.Identity, norms)
        if plain and is_plain(nn.Conv2D, convs):
            output = dense_block(x, [conv.weight for conv in convs])
            if output is not None:
                return output
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return paddle.concat(features, axis=1)


class Transition(nn.Layer):
    """Batch normalisation, 1x1 convolution and, if asked for, 2x2 average pooling; no ReLU."""

    def __init__(self, in_dim: int, out_dim: int, *, pool: bool) -> None:
        super().__init__()
        self.norm = BatchNorm2D(in_dim)
        self.conv = conv(in_dim, out_dim, 1)
        self.pool = nn.AvgPool2D(2, 2) if pool else nn.Identity()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, C, H, W) to (B, out_dim, H, W) or (B, out_dim, H / 2, W / 2)."""
        output = self.norm.pooled_conv(x, self.conv, self.pool)
        if output is not None:
            return output
        return self.pool(self.conv(self.norm(x)))


class Bottleneck(nn.Layer):
    """Residual block 1x1, 3x3 with the stride, 1x1 of the ResNet embedding (in, 64, 64, 256).

    ``downsample``: convolution and norm on the shortcut instead of the identity.
    """

    width, out_dim = 64, 256

    def __init__(self, in_dim: int, *, stride: int, downsample: bool) -> None:
        super().__init__()
        self.conv1 = conv(in_dim, self.width, 1)
        self.norm1 = BatchNorm2D(self.width, **TIGHT)
        self.conv2 = conv(self.width, self.width, 3, stride=stride, padding=1)
        self.norm2 = BatchNorm2D(self.width, **TIGHT)
        self.conv3 = conv(self.width, self.out_dim, 1)
        self.norm3 = BatchNorm2D(self.out_dim, **TIGHT)
        self.shortcut = (
            ConvNorm(in_dim, self.out_dim, 1, stride=stride) if downsample else nn.Identity()
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, C, H, W) to (B, 256, H / stride, W / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class InceptionBlock(nn.Layer):
    """Four branches side by side: 1x1, 3x3, 5x5 and max-pooling, 32 + 64 + 16 + 16 channels."""

    out_dim = 128

    def __init__(self, in_dim: int, *, stride: int) -> None:
        super().__init__()

        def unit(dim: int, out: int, kernel: int, step: int = 1) -> ConvNorm:
            options = {"stride": step, "padding": kernel // 2, "relu": True}
            return ConvNorm(dim, out, kernel, **options, norm={"epsilon": 1e-3})

        self.branch1 = unit(in_dim, 32, 1, stride)
        self.branch3_reduce = unit(in_dim, 32, 1)
        self.branch3 = unit(32, 64, 3, stride)
        self.branch5_reduce = unit(in_dim, 16, 1)
        self.branch5 = unit(16, 16, 5, stride)
        self.pool = nn.MaxPool2D(3, stride, padding=1)
        self.branch_pool = unit(in_dim, 16, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, C, H, W) to (B, 128, H / stride, W / stride)."""
        branches = [
            self.branch1(x),
            self.branch3(self.branch3_reduce(x)),
            self.branch5(self.branch5_reduce(x)),
            self.branch_pool(self.pool(x)),
        ]
        return paddle.concat(branches, axis=1)


class NonLocalBlock(nn.Layer):
    """Non-local block: ``BN(out(softmax(theta phi^T) g) + shortcut(x))`` over all positions.

    The scores are not scaled. ``out`` starts at zero, so the block starts as its shortcut. g, theta
    and phi have ``inner_dim`` channels.
    """

    def __init__(self, in_dim: int, out_dim: int, *, inner_dim: int = 64) -> None:
        super().__init__()
        self.inner_dim = inner_dim
        self.g = ConvNorm(in_dim, inner_dim, 1, bias=True)
        self.theta = ConvNorm(in_dim, inner_dim, 1, bias=True)
        self.phi = ConvNorm(in_dim, inner_dim, 1, bias=True)
        zero = paddle.ParamAttr(initializer=nn.initializer.Constant(0.0))
        self.out = nn.Conv2D(inner_dim, out_dim, 1, weight_attr=zero, bias_attr=zero)
        self.shortcut = ConvNorm(in_dim, out_dim, 1, bias=True)
        self.norm = BatchNorm2D(out_dim)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, C, H, W) to (B, out_dim, H, W)."""
        batch, _, height, width = x.shape
        theta = self.theta(x).flatten(2)  # (B, inner, P)
        phi = self.phi(x).flatten(2)  # (B, inner, P)
        g = self.g(x).flatten(2)  # (B, inner, P)
        weights = F.softmax(paddle.matmul(theta, phi, transpose_x=True), axis=-1)  # (B, P, P)
        mixed = paddle.matmul(g, weights, transpose_y=True)  # (B, inner, P)
        mixed = mixed.reshape([batch, self.inner_dim, height, width])
        return self.norm(self.out(mixed) + self.shortcut(x))
