"""A small residual network with attention over its pixels, in PyTorch: a side of apart_pair.py.

Shapes: B images, C channels, H x W pixels, N = H x W tokens, h heads.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Stem(nn.Module):
    """A convolution with stride 2, batch norm and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) to (B, C, H / 2, W / 2)."""
        return self.act(self.norm(self.conv(x)))


class Block(nn.Module):
    """Self-attention and a feed-forward part, each behind a layer norm, with residuals."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, N, C) to (B, N, C)."""
        b, n, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)  # each (B, h, N, C / h)
        mixed = F.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, n, c))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Net(nn.Module):
    """Stem, blocks, mean over the tokens, classifier."""

    def __init__(self, dim: int = 24, heads: int = 3, hidden: int = 40, blocks: int = 2) -> None:
        super().__init__()
        self.stem = Stem(dim)
        self.blocks = nn.ModuleList([Block(dim, heads, hidden) for _ in range(blocks)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (B, 3, H, W) to scores (B, 10)."""
        x = self.stem(x).flatten(2).transpose(1, 2)  # (B, N, C)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))
