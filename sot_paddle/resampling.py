"""Position tables, which depend on the size of the image, made for another size. NumPy only.

Shape legend: N positions of a square grid, C channels, w window side in tokens.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

_SLOPE = -0.5  # Keys' cubic parameter in PyTorch's interpolation with antialiasing, as in Pillow


def cubic(distance: np.ndarray) -> np.ndarray:
    """Keys' cubic convolution kernel with slope -0.5 at distance 1, zero from distance 2 on.

    Args:
        distance: to the sample, in samples, any shape and sign.

    Returns:
        Weights of the same shape, float64.
    """
    x = np.abs(np.asarray(distance, np.float64))
    near = ((_SLOPE + 2.0) * x - (_SLOPE + 3.0)) * x * x + 1.0
    far = _SLOPE * (((x - 5.0) * x + 8.0) * x - 4.0)
    return np.where(x <= 1.0, near, np.where(x < 2.0, far, 0.0))


def bicubic_weights(old: int, new: int) -> np.ndarray:
    """The matrix that resamples one axis of old samples, pixel centres at half-integers.

    The kernel is stretched when the axis shrinks, and the weights inside the axis are normalised to
    sum 1.

    Returns:
        (new, old), float64; every row sums to 1.

    Source: PyTorch's ``interpolate(mode="bicubic", align_corners=False, antialias=True)``.
    """
    scale = old / new
    stretch = max(scale, 1.0)
    weights = np.zeros((new, old))
    for row, center in zip(weights, (np.arange(new) + 0.5) * scale, strict=True):
        first = max(int(center - 2.0 * stretch + 0.5), 0)  # sample j covers [j, j + 1)
        stop = min(int(center + 2.0 * stretch + 0.5), old)
        taken = cubic((np.arange(first, stop) + 0.5 - center) / stretch)
        row[first:stop] = taken / taken.sum()
    return weights


def resample_position_embedding(table: np.ndarray, num_tokens: int) -> np.ndarray:
    """Make a learned position embedding for another number of tokens.

    Bicubic with antialiasing over the grid; the class token's row, the first, stays.

    Args:
        table: (1, 1 + N, C), floating, N a square number.
        num_tokens: N wanted, a square number.

    Returns:
        (1, 1 + num_tokens, C), of the table's dtype; the table itself when nothing changes.

    Raises:
        ValueError: a number of tokens that is no square.

    Source: timm 1.0.31, ``resample_abs_pos_embed``, which computes in float32.
    """
    old, new = _side(table.shape[1] - 1, "tokens"), _side(num_tokens, "tokens")
    if old == new:
        return table
    grid = table[0, 1:].reshape(old, old, -1).astype(np.float64)  # (n, n, C)
    matrix = bicubic_weights(old, new)
    words = np.einsum("ai,ijc,bj->abc", matrix, grid, matrix, optimize=True).astype(table.dtype)
    return np.concatenate([table[:, :1], words.reshape(1, new * new, -1)], axis=1)


def window_of(length: int) -> int:
    """The window side of a bias table of a length, (2w - 1)^2.

    Raises:
        ValueError: no window has this length.
    """
    side = _side(length, "offsets")
    if side % 2 == 0:
        raise ValueError(f"a bias table of {length} offsets belongs to no square window")
    return (side + 1) // 2


def sinusoid_table(positions: int, dim: int) -> np.ndarray:
    """The fixed position table of SoT, the class token at position 0.

    angle(n, j) = n / 10000^(2 floor(j / 2) / C); its sine for even j, its cosine for odd j.

    Args:
        positions: 1 + N.
        dim: channels C.

    Returns:
        (1, positions, dim), float64; published as float32.

    Source: A.8.
    """
    channel = np.arange(dim)
    angle = np.arange(positions)[:, None] / np.power(10000.0, 2 * (channel // 2) / dim)
    table = np.where(channel % 2 == 0, np.sin(angle), np.cos(angle))  # (1 + N, C)
    return table[None]


def is_sinusoid(table: np.ndarray) -> bool:
    """Whether a position table (1, 1 + N, C) is the fixed one, up to the rounding of an EMA."""
    expected = sinusoid_table(table.shape[1], table.shape[2])
    precision = 2.0 ** -min(ml_dtypes.finfo(table.dtype).nmant, 17)
    return bool(np.all(np.abs(table.astype(np.float64) - expected) <= precision))


def _side(count: int, what: str) -> int:
    if count < 1 or math.isqrt(count) ** 2 != count:
        raise ValueError(f"{count} {what} are no square grid")
    return math.isqrt(count)
