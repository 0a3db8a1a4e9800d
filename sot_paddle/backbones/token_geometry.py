"""Arithmetic of the token embeddings: what an image size makes of the token grid (A.7).

Pure functions of integers; lengths are pixels along one side, grids are tokens along one side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

LINEAR_GRID = 14
"""Patches along each side that ``linear`` aims at."""

STEM_STRIDE = 2

Strides = tuple[int, ...]


def third_stride(img_size: int) -> int:
    """Stride of the third stage: ``img_size // 112`` as published, but 1 below 112 pixels."""
    return max(img_size // 112, 1)


def _halved(img_size: int) -> int:
    return min(third_stride(img_size), 2)


_STRIDES: Mapping[str, Callable[[int, bool], Strides]] = {
    "densenet": lambda size, large: (2, 1, 1) if large else (2, 2, _halved(size)),
    "resnet": lambda size, large: (2, 2, third_stride(size)),
    "inception": lambda size, large: (1, 1, 1) if large else (2, 2, _halved(size)),
    "nonlocal": lambda size, large: (2, 2),
}


def stage_strides(token_type: str, img_size: int, large_output: bool) -> Strides:
    """By how much each stage of a published embedding divides the resolution, the stem left out.

    ``large_output`` is the finer of the two published resolutions.
    """
    return _STRIDES[token_type](img_size, large_output)


def _reduction(token_type: str, img_size: int, large_output: bool) -> int:
    return math.prod(stage_strides(token_type, img_size, large_output), start=STEM_STRIDE)


def staged_grid(token_type: str, img_size: int, large_output: bool) -> int:
    """Side of the token grid of an embedding with stages.

    Raises:
        ValueError: the image's side is no multiple of the reduction; the nearest sizes that are
            are named.
    """
    reduction = _reduction(token_type, img_size, large_output)
    if img_size % reduction == 0:
        return img_size // reduction

    def fits(size: int) -> bool:
        return size > 0 and size % _reduction(token_type, size, large_output) == 0

    span = range(1, 2 * reduction)
    below = next((img_size - step for step in span if fits(img_size - step)), None)
    above = next(img_size + step for step in span if fits(img_size + step))
    near = f"{below} or {above}" if below else f"{above}"
    raise ValueError(
        f"token_type {token_type!r} divides the image by {reduction}: img_size {img_size} gives no "
        f"whole number of tokens; use img_size {near}"
    )


def linear_patch(img_size: int) -> int:
    """Side of a patch of ``linear``: ``img_size // 14``.

    QUIRK: published. Pixels beyond the last whole patch are never looked at.

    Raises:
        ValueError: fewer pixels than patches.
    """
    if img_size < LINEAR_GRID:
        raise ValueError(
            f"img_size must be at least {LINEAR_GRID} with token_type 'linear', got {img_size}"
        )
    return img_size // LINEAR_GRID


def whole_patch(img_size: int, patch_size: int) -> int:
    """``patch_size``, refused where it does not divide the image."""
    if img_size % patch_size:
        raise ValueError(f"img_size must be a multiple of patch_size {patch_size}, got {img_size}")
    return patch_size
