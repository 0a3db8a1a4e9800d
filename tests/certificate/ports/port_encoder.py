"""Paddle's own transformer layers under PyTorch's names and conventions.

Shapes: B samples, N tokens, C width.
"""

from __future__ import annotations

import paddle
from paddle import nn

DIM, HEADS, HIDDEN = 12, 3, 20


class Encoder(nn.Layer):
    """Two encoder layers that normalise first, and a final norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LayerList(
            nn.TransformerEncoderLayer(
                DIM, HEADS, HIDDEN, dropout=0.0, activation="gelu", normalize_before=True
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x: paddle.Tensor, padding: paddle.Tensor) -> paddle.Tensor:
        """Tokens (B, N, C) and padding (B, N), True where there is none, to (B, N, C)."""
        keep = paddle.logical_not(padding).unsqueeze([1, 2])  # Paddle: True = may be seen
        for layer in self.layers:
            x = layer(x, keep)
        return self.norm(x)
