"""Mixup, CutMix and random erasing of a batch; drawn apart from applied. Source: timm 0.3.4, A.9.

Mixup and CutMix take a batch and its mirror image: image i is mixed with image B - 1 - i. One draw
serves the whole batch. The mix is made on uint8 pixels and rounded to uint8 again, before the
normalisation, as in the original's collate function. Random erasing comes after the normalisation:
a rectangle of an image becomes noise.

QUIRK: the box of CutMix has ``2 * (side // 2)`` rows and columns, so an odd side loses one, as in
timm 0.3.4 (1.0.31 keeps it); lam is computed from the box that was cut.

Shape legend: B images, C channels, H rows, W columns, K classes; h, w of a rectangle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sot_paddle.data.image_transforms import TRIES, Crop


@dataclass(frozen=True)
class MixConfig:
    """Options of mixing; the defaults are the published recipe, a single class a ValueError."""

    num_classes: int  # K
    mixup: float = 0.8  # alpha of mixup's Beta(alpha, alpha); 0 switches mixup off
    cutmix: float = 1.0  # alpha of CutMix's; 0 switches it off; one of both is above 0
    prob: float = 1.0
    switch_prob: float = 0.5  # probability of CutMix where both are on
    smoothing: float = 0.1  # label smoothing eps, folded into the targets
    off_epoch: int = 0  # from this epoch on nothing is mixed, targets stay smoothed; 0 for never

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise ValueError(f"mixing: expected at least 2 classes, got {self.num_classes}")


@dataclass(frozen=True)
class Mix:
    """The draw of one batch."""

    lam: float = 1.0  # weight of an image's own label, 0 to 1; of its pixels too without a box
    # top, bottom, left, right of the part that comes from the other image (CutMix), None for mixup
    box: tuple[int, int, int, int] | None = None


def draw_mix(
    rng: np.random.Generator, config: MixConfig, height: int, width: int, epoch: int = 0
) -> Mix:
    """Draw how one batch of images of H x W is mixed, CutMix's weight by the box's real area."""
    over = config.off_epoch and epoch >= config.off_epoch
    if rng.random() >= config.prob or over:
        return Mix()
    if config.mixup and config.cutmix:
        cut = bool(rng.random() < config.switch_prob)
    else:
        cut = config.cutmix > 0
    alpha = config.cutmix if cut else config.mixup
    lam = float(rng.beta(alpha, alpha))
    if not cut:
        return Mix(lam)
    bounds = []  # of a box of area 1 - lam around a place, clipped to the image
    for size in (height, width):
        place, half = int(rng.integers(size)), int(size * math.sqrt(1 - lam)) // 2
        bounds += [max(0, place - half), min(size, place + half)]
    top, bottom, left, right = bounds
    area = (bottom - top) * (right - left)
    return Mix(1.0 - area / float(height * width), (top, bottom, left, right))


def mix_images(images: np.ndarray, mix: Mix) -> np.ndarray:
    """The mixed images: uint8 (B, H, W, 3), B even, to new ones of that shape, or themselves."""
    if mix.lam == 1.0:
        return images
    if mix.box is not None:
        (top, bottom, left, right), mixed = mix.box, images.copy()
        mixed[:, top:bottom, left:right] = images[::-1, top:bottom, left:right]
        return mixed
    mixed = np.empty_like(images)
    weight, partner_weight = np.float32(mix.lam), np.float32(1 - mix.lam)
    for place, image in enumerate(images):  # one at a time: a float32 batch would be large
        blend = image * weight
        blend += images[-1 - place] * partner_weight
        mixed[place] = np.rint(blend, out=blend)
    return mixed


def mix_labels(labels: np.ndarray, num_classes: int, lam: float, smoothing: float) -> np.ndarray:
    """Soft targets: smoothed one-hot rows, mixed with the mirrored batch's.

    Args:
        labels: (B,) int64 from 0 to below K.
        smoothing: eps; the label's class has 1 - eps + eps / K, the others eps / K.

    Returns:
        float32 (B, K); rows sum to 1.
    """
    off = smoothing / num_classes
    rows = np.full((len(labels), num_classes), off, dtype=np.float32)
    rows[np.arange(len(labels)), labels] = 1.0 - smoothing + off
    return rows * np.float32(lam) + rows[::-1] * np.float32(1.0 - lam)


@dataclass(frozen=True)
class ErasingConfig:
    """Options of random erasing; the defaults are the published recipe."""

    prob: float = 0.25
    min_area: float = 0.02  # smallest part of the image's area
    max_area: float = 1 / 3
    min_aspect: float = 0.3  # smallest height / width, the largest its inverse; uniform in the log


@dataclass(frozen=True)
class Erasure(Crop):
    """One rectangle."""

    values: np.ndarray  # float32 (C, h, w), of N(0, 1)


def draw_erasure(
    rng: np.random.Generator, config: ErasingConfig, shape: tuple[int, int, int]
) -> Erasure | None:
    """Draw the rectangle of one image of shape (C, H, W), None for none.

    One as high or as wide as the image is drawn again, ten times at most; then there is none.
    """
    if rng.random() >= config.prob:
        return None
    channels, height, width = shape
    aspects = (math.log(config.min_aspect), math.log(1 / config.min_aspect))
    for _ in range(TRIES):
        area = rng.uniform(config.min_area, config.max_area) * height * width
        aspect = math.exp(rng.uniform(*aspects))
        rows, columns = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if rows < height and columns < width:
            top = int(rng.integers(height - rows + 1))
            left = int(rng.integers(width - columns + 1))
            values = rng.standard_normal((channels, rows, columns), dtype=np.float32)
            return Erasure(top, left, rows, columns, values)
    return None


def erase(image: np.ndarray, erasure: Erasure) -> None:
    """Overwrite the rectangle of a normalised (C, H, W) image in place."""
    rows = slice(erasure.top, erasure.top + erasure.height)
    columns = slice(erasure.left, erasure.left + erasure.width)
    image[:, rows, columns] = erasure.values
