"""Random erasing: a rectangle of a normalised image becomes noise; drawn apart from applied.

Source: specs.md A.9 (timm 0.3.4, which erases after the normalisation).

Shape legend: C channels, H rows, W columns; h, w of a rectangle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sot_paddle.data.image_augment import Crop

TRIES = 10
MODES = ("pixel", "rand", "const")


@dataclass(frozen=True)
class ErasingConfig:
    """Options of random erasing; the defaults are the published recipe.

    Attributes:
        prob: probability that an image is erased.
        mode: ``"pixel"`` N(0, 1) for each number, ``"rand"`` one N(0, 1) for each channel,
            ``"const"`` zero.
        count: largest number of rectangles, uniform from 1; they share the area.
        min_area: smallest part of the image's area.
        max_area: largest part.
        min_aspect: smallest height / width; the largest is its inverse, uniform in the logarithm.
    """

    prob: float = 0.25
    mode: str = "pixel"
    count: int = 1
    min_area: float = 0.02
    max_area: float = 1 / 3
    min_aspect: float = 0.3


@dataclass(frozen=True)
class Erasure(Crop):
    """One rectangle.

    Attributes:
        values: float32, (C, h, w) or (C, 1, 1).
    """

    values: np.ndarray


def draw_erasures(
    rng: np.random.Generator, config: ErasingConfig, shape: tuple[int, int, int]
) -> tuple[Erasure, ...]:
    """Draw the rectangles of one image.

    A rectangle as high or as wide as the image is drawn again, ten times at most; then there is
    none.

    Args:
        rng: of this image in this epoch.
        config: the recipe.
        shape: (C, H, W).

    Returns:
        Mostly nothing, else one rectangle or more.
    """
    if rng.random() >= config.prob:
        return ()
    channels, height, width = shape
    count = int(rng.integers(1, config.count + 1))
    aspects = (math.log(config.min_aspect), math.log(1 / config.min_aspect))
    erasures = []
    for _ in range(count):
        for _ in range(TRIES):
            area = rng.uniform(config.min_area, config.max_area) * height * width / count
            aspect = math.exp(rng.uniform(*aspects))
            rows, columns = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if rows < height and columns < width:
                top = int(rng.integers(height - rows + 1))
                left = int(rng.integers(width - columns + 1))
                values = _values(rng, config.mode, (channels, rows, columns))
                erasures.append(Erasure(top, left, rows, columns, values))
                break
    return tuple(erasures)


def _values(rng: np.random.Generator, mode: str, shape: tuple[int, int, int]) -> np.ndarray:
    if mode == "pixel":
        return rng.standard_normal(shape, dtype=np.float32)
    if mode == "rand":
        return rng.standard_normal((shape[0], 1, 1), dtype=np.float32)
    return np.zeros((shape[0], 1, 1), dtype=np.float32)


def apply_erasures(image: np.ndarray, erasures: tuple[Erasure, ...]) -> None:
    """Overwrite the rectangles of a normalised (C, H, W) image in place."""
    for erasure in erasures:
        rows = slice(erasure.top, erasure.top + erasure.height)
        columns = slice(erasure.left, erasure.left + erasure.width)
        image[:, rows, columns] = erasure.values
