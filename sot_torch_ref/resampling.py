"""Position tables made for another size, with PyTorch's own interpolation.

Legend: N tokens of a square grid, C channels.
"""

import math

import torch
from torch.nn import functional as F


def resize_position_embedding(table: torch.Tensor, tokens: int) -> torch.Tensor:
    """A learned position embedding for another grid, bicubic and antialiased.

    Args:
        table: (1, 1 + N, C), the class token first.
        tokens: Number of tokens wanted, a square number.

    Returns:
        (1, 1 + tokens, C); the class token's row is as it was.

    Source: timm 1.0.31, ``resample_abs_pos_embed``.
    """
    return torch.cat([table[:, :1], _resize(table[0, 1:], tokens)[None]], dim=1)


def _resize(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Rows (n n, C) of a square grid -> (count, C)."""
    if len(rows) == count:
        return rows
    old, new = math.isqrt(len(rows)), math.isqrt(count)
    image = rows.T.reshape(1, -1, old, old)  # (1, C, n, n)
    image = F.interpolate(
        image, size=(new, new), mode="bicubic", align_corners=False, antialias=True
    )
    return image[0].flatten(1).T
