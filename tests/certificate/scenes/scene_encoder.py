"""The transformer layers of both frameworks themselves: packed against separate projections."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.certificate.ports.port_encoder import DIM, HEADS, HIDDEN, Encoder
from tests.certificate.scene import Scene


class TorchEncoder(nn.Module):
    """Two of PyTorch's own encoder layers, which normalise first, and a final norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                DIM,
                HEADS,
                HIDDEN,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Tokens (B, N, C) and padding (B, N), True where there is none, to (B, N, C)."""
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.norm(x)


def encoder(seed: int) -> Scene:
    """nn.TransformerEncoderLayer on both sides, with a padding mask."""
    rng = np.random.default_rng((seed, 7))
    padding = np.arange(7)[None] >= np.array([[7], [4]])
    return Scene(
        TorchEncoder,
        Encoder,
        {"x": rng.normal(size=(2, 7, DIM)), "padding": padding},
        weights={"map": {}, "modules": {"layers.{}.dropout": None}},
        train=True,  # in eval mode PyTorch's layer takes a fused path without its modules
    )
