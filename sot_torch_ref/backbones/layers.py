"""Layers that the vision backbones share.

Legend: B samples, N tokens, C channels.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

INIT_STD = 0.02


class DropPath(nn.Module):
    """Stochastic depth for each sample: x -> mask * x / keep, with keep = 1 - rate.

    The mask is floor(keep + u) with u uniform in [0, 1), one draw for each sample.

    Args:
        rate: Probability that the branch of a sample is dropped, in [0, 1).

    Source: specs A.8.
    """

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def draw(self, batch: int, like: torch.Tensor) -> torch.Tensor:
        """Uniform numbers (batch,) in [0, 1), of the dtype and device of ``like``."""
        return torch.rand(batch, dtype=like.dtype, device=like.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, ...) -> (B, ...); the identity in eval mode and for a rate of 0."""
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1.0 - self.rate
        mask = torch.floor(keep + self.draw(x.shape[0], x))  # (B,)
        return x / keep * mask.reshape(-1, *[1] * (x.ndim - 1))


def drop_path_rates(rate: float, depth: int) -> list[float]:
    """Rates that rise linearly from 0 at the first block to ``rate`` at the last.

    Source: specs A.8.
    """
    return np.linspace(0.0, rate, depth).tolist()


class Mlp(nn.Module):
    """Two linear layers with the exact GELU between them; dropout after each.

    Args:
        dim: Channels C.
        hidden_dim: Hidden width.
        drop_rate: Dropout probability.
    """

    def __init__(self, dim: int, hidden_dim: int, drop_rate: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.drop = nn.Dropout(drop_rate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., C) -> (..., C)."""
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))


def initialise_backbone(backbone: nn.Module) -> None:
    """Linear weights N(0, 0.02), their biases 0, layer norms 1 and 0.

    Convolutions keep torch's default and batch norms 1 and 0.

    Source: specs A.7 and A.8.
    """
    for module in backbone.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=INIT_STD)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


def require_images(images: torch.Tensor, in_chans: int, img_size: int) -> None:
    """Raise ValueError unless ``images`` is a float batch (B, in_chans, img_size, img_size)."""
    expected = (in_chans, img_size, img_size)
    if images.ndim != 4 or tuple(images.shape[1:]) != expected or not images.is_floating_point():
        raise ValueError(
            f"images must be a float batch (B, {in_chans}, {img_size}, {img_size}), got "
            f"{images.dtype} of shape {tuple(images.shape)}; normalise and resize the images, or "
            "build the model with their img_size and in_chans"
        )
