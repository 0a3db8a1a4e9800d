"""Tables that depend on the size of the image or of the window, made for another size. NumPy only.

Shape legend: N positions of a square grid, C channels, H attention heads, w window side in tokens.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

_SHARP = -0.75  # Keys' cubic parameter in PyTorch's plain bicubic interpolation
_SMOOTH = -0.5  # the one it uses with antialiasing, as Pillow does


def cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel, zero from distance 2 on.

    Args:
        distance: to the sample, in samples, any shape and sign.
        a: slope at distance 1.

    Returns:
        Weights of the same shape, float64.
    """
    x = np.abs(np.asarray(distance, np.float64))
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = a * (((x - 5.0) * x + 8.0) * x - 4.0)
    return np.where(x <= 1.0, near, np.where(x < 2.0, far, 0.0))


def bicubic_weights(old: int, new: int, *, antialias: bool) -> np.ndarray:
    """The matrix that resamples one axis of old samples, pixel centres at half-integers.

    Without antialiasing: four samples with a = -0.75, the border repeated. With it: a = -0.5, the
    kernel stretched when the axis shrinks, the weights inside the axis normalised to sum 1.

    Returns:
        (new, old), float64; every row sums to 1.

    Source: PyTorch's ``interpolate(mode="bicubic", align_corners=False)``.
    """
    scale = old / new
    centers = (np.arange(new) + 0.5) * scale  # in samples, sample j covers [j, j + 1)
    weights = np.zeros((new, old))
    if antialias:
        stretch = max(scale, 1.0)
        for row, center in zip(weights, centers, strict=True):
            first = max(int(center - 2.0 * stretch + 0.5), 0)
            stop = min(int(center + 2.0 * stretch + 0.5), old)
            taken = cubic((np.arange(first, stop) + 0.5 - center) / stretch, _SMOOTH)
            row[first:stop] = taken / taken.sum()
        return weights
    for row, center in zip(weights, centers, strict=True):
        left = math.floor(center - 0.5)
        for j in range(left - 1, left + 3):
            row[min(max(j, 0), old - 1)] += cubic(j + 0.5 - center, _SHARP)
    return weights


def resample_grid(grid: np.ndarray, side: int, *, antialias: bool) -> np.ndarray:
    """Resample a square grid of vectors (n, n, C), bicubic; see :func:`bicubic_weights`.

    Returns:
        (side, side, C), of the grid's dtype; computed in float64.
    """
    old = grid.shape[0]
    assert grid.shape[1] == old, grid.shape
    matrix = bicubic_weights(old, side, antialias=antialias)
    wide = np.einsum("ai,ijc,bj->abc", matrix, grid.astype(np.float64), matrix, optimize=True)
    return wide.astype(grid.dtype)


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
    words = table[0, 1:].reshape(old, old, -1)  # (n, n, C)
    words = resample_grid(words, new, antialias=True).reshape(new * new, -1)
    return np.concatenate([table[:, :1], words[None]], axis=1)


def resample_bias_table(table: np.ndarray, window: int) -> np.ndarray:
    """Make a relative position bias table of Swin for another window.

    Bicubic without antialiasing over the grid of offsets.

    Args:
        table: ((2w - 1)^2, H), floating.
        window: w wanted, in tokens.

    Returns:
        ((2 * window - 1)^2, H), of the table's dtype; the table itself when nothing changes.

    Raises:
        ValueError: a table whose length is no square of an odd number.

    Source: Swin's own loading of weights for another window. timm's
        ``resize_rel_pos_bias_table_simple`` is the same; its ``resize_rel_pos_bias_table`` (linear
        on a geometric grid) is not.
    """
    old, new = window_of(table.shape[0]), window
    if old == new:
        return table
    grid = table.reshape(2 * old - 1, 2 * old - 1, -1)  # (2w - 1, 2w - 1, H)
    return resample_grid(grid, 2 * new - 1, antialias=False).reshape((2 * new - 1) ** 2, -1)


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
