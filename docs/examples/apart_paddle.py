"""The port of apart_torch.py to Paddle: the other side of apart_pair.py.

Shapes: B images, C channels, H x W pixels, N = H x W tokens, h heads.
"""

import paddle
from paddle import nn
from paddle.nn import functional as F


class Stem(nn.Layer):
    """A convolution with stride 2, batch norm and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, width, 3, stride=2, padding=1, bias_attr=False)
        self.bn = nn.BatchNorm2D(width)
        self.act = nn.ReLU()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, 3, H, W) to (B, C, H / 2, W / 2)."""
        return self.act(self.bn(self.conv(x)))


class Attention(nn.Layer):
    """Self-attention with three projections of its own."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def split(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, N, C) to (B, h, N, C / h)."""
        return x.reshape([x.shape[0], x.shape[1], self.heads, -1]).transpose([0, 2, 1, 3])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, N, C) to (B, N, C)."""
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose([0, 1, 3, 2]) / q.shape[-1] ** 0.5
        return self.out((F.softmax(scores, axis=-1) @ v).transpose([0, 2, 1, 3]).reshape(x.shape))


class Block(nn.Layer):
    """Self-attention and a feed-forward part, each behind a layer norm, with residuals."""

    def __init__(self, dim: int, heads: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=1e-6)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, epsilon=eps)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, N, C) to (B, N, C)."""
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Net(nn.Layer):
    """Stem, blocks, mean over the tokens, classifier; ``eps`` is that of the second norms."""

    def __init__(self, dim=24, heads=3, hidden=40, blocks=2, eps=1e-6) -> None:
        super().__init__()
        self.stem = Stem(dim)
        self.blocks = nn.LayerList([Block(dim, heads, hidden, eps) for _ in range(blocks)])
        self.norm = nn.LayerNorm(dim, epsilon=1e-6)
        self.head = nn.Linear(dim, 10)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Images (B, 3, H, W) to scores (B, 10)."""
        x = self.stem(x).flatten(2).transpose([0, 2, 1])  # (B, N, C)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(axis=1))
