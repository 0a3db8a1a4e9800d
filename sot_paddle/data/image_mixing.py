"""Mixup and CutMix of a batch with its mirror image, on bytes; drawn apart from applied.

Image i is mixed with image B - 1 - i. One draw serves the whole batch. The mix is made on uint8
pixels and rounded to uint8 again, before the normalisation, as in the original's collate function.
Source: specs.md A.9 (timm 0.3.4).

QUIRK: the box of CutMix has ``2 * (side // 2)`` rows and columns, so an odd side loses one, as in
timm 0.3.4 (1.0.31 keeps it); lam is computed from the box that was cut.

Shape legend: B images, H rows, W columns, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sot_paddle.data.errors import DataError


@dataclass(frozen=True)
class MixConfig:
    """Options of mixing; the defaults are the published recipe.

    Attributes:
        num_classes: K.
        mixup: alpha of mixup's Beta(alpha, alpha); 0 switches mixup off.
        cutmix: alpha of CutMix's; 0 switches it off; one of both is above 0.
        prob: probability that a batch is mixed.
        switch_prob: probability of CutMix where both are on.
        smoothing: label smoothing eps, folded into the targets.
        off_epoch: from this epoch on nothing is mixed, targets stay smoothed; 0 for never.

    Raises:
        DataError: a single class.
    """

    num_classes: int
    mixup: float = 0.8
    cutmix: float = 1.0
    prob: float = 1.0
    switch_prob: float = 0.5
    smoothing: float = 0.1
    off_epoch: int = 0

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise DataError(f"mixing: expected at least 2 classes, got {self.num_classes}")


@dataclass(frozen=True)
class Box:
    """Rows ``top`` to below ``bottom``, columns ``left`` to below ``right``."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True)
class Mix:
    """The draw of one batch.

    Attributes:
        lam: weight of an image's own label, 0 to 1; of its pixels too when ``box`` is None.
        box: the part that comes from the other image (CutMix), None for mixup.
    """

    lam: float = 1.0
    box: Box | None = None


def draw_mix(
    rng: np.random.Generator, config: MixConfig, height: int, width: int, epoch: int = 0
) -> Mix:
    """Draw how one batch is mixed.

    Args:
        rng: of this batch.
        config: the recipe.
        height: of the images.
        width: of the images.
        epoch: compared with ``config.off_epoch``.

    Returns:
        The weight and, for CutMix, the box, with the weight corrected to the box's real area.
    """
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
    center = (int(rng.integers(height)), int(rng.integers(width)))
    return cut_box(lam, center, height, width)


def cut_box(lam: float, center: tuple[int, int], height: int, width: int) -> Mix:
    """The box of area 1 - ``lam`` around a place, clipped to the image, and its real weight.

    Args:
        lam: drawn weight.
        center: (row, column).
        height: H.
        width: W.
    """
    part = math.sqrt(1 - lam)
    bounds = []
    for place, size in zip(center, (height, width), strict=True):
        half = int(size * part) // 2
        bounds += [max(0, place - half), min(size, place + half)]
    box = Box(*bounds)
    area = (box.bottom - box.top) * (box.right - box.left)
    return Mix(1.0 - area / float(height * width), box)


def mix_images(images: np.ndarray, mix: Mix) -> np.ndarray:
    """The mixed images.

    Args:
        images: uint8 (B, H, W, 3), B even; not changed.
        mix: the draw.

    Returns:
        uint8 (B, H, W, 3); the same array when there is nothing to mix.
    """
    if mix.lam == 1.0:
        return images
    if mix.box is not None:
        box, mixed = mix.box, images.copy()
        part = (slice(None), slice(box.top, box.bottom), slice(box.left, box.right))
        mixed[part] = images[::-1][part]
        return mixed
    mixed = np.empty_like(images)
    own, other = np.float32(mix.lam), np.float32(1 - mix.lam)
    for place, image in enumerate(images):  # one at a time: a float32 batch would be large
        blend = image * own
        blend += images[-1 - place] * other
        mixed[place] = np.rint(blend, out=blend)
    return mixed


def mix_labels(labels: np.ndarray, num_classes: int, lam: float, smoothing: float) -> np.ndarray:
    """Soft targets: smoothed one-hot rows, mixed with the mirrored batch's.

    Args:
        labels: (B,) whole numbers from 0 to below K.
        num_classes: K.
        lam: weight of an image's own label.
        smoothing: eps; the label's class has 1 - eps + eps / K, the others eps / K.

    Returns:
        float32 (B, K); rows sum to 1.
    """
    labels = np.asarray(labels, dtype=np.int64)
    off = smoothing / num_classes
    rows = np.full((len(labels), num_classes), off, dtype=np.float32)
    rows[np.arange(len(labels)), labels] = 1.0 - smoothing + off
    return rows * np.float32(lam) + rows[::-1] * np.float32(1.0 - lam)
