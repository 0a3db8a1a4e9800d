"""The training transform of one image: crop, flip, RandAugment or colour jitter.

Drawing is apart from applying: :meth:`TrainTransform.draw` turns a generator into a record of
numbers, :meth:`TrainTransform.apply` turns image and record into pixels. Normalisation, random
erasing and mixing follow when the batch is put together. Source: specs.md A.9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_operations import apply_operation
from sot_paddle.data.image_randaugment import (
    RESAMPLINGS,
    DrawnOperation,
    draw_operations,
    parse_randaugment,
)
from sot_paddle.data.image_transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    center_crop,
    get_resampling,
    resize_shorter,
)

TRIES = 10
JITTERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


@dataclass(frozen=True)
class AugmentConfig:
    """Options of the training transform; the defaults are the published recipe.

    Attributes:
        img_size: of the square output, in pixels.
        scale: smallest and largest part of the image's area that a crop has.
        ratio: smallest and largest width / height of a crop.
        interpolation: of the resize; ``"random"`` draws bilinear or bicubic, also for RandAugment.
        hflip: probability of a horizontal flip.
        auto_augment: RandAugment string, None for none.
        color_jitter: strength for brightness, contrast and saturation; as in the original it has no
            effect while ``auto_augment`` is set.
        no_aug: resize the shorter side and crop the centre, nothing else.
        mean: per channel, for pixels from 0 to 1; also RandAugment's fill colour.
        std: per channel.

    Raises:
        DataError: a range or a filter that cannot be; the command's options refuse other values.
    """

    img_size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "random"
    hflip: float = 0.5
    auto_augment: str | None = "rand-m9-mstd0.5-inc1"
    color_jitter: float = 0.4
    no_aug: bool = False
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if self.interpolation != "random":
            kind = get_resampling(self.interpolation)
            turned = self.auto_augment and not self.no_aug
            if turned and kind not in (Image.Resampling.NEAREST, *RESAMPLINGS):
                raise DataError(
                    f"RandAugment cannot resample by {self.interpolation!r}: take random, nearest, "
                    "bilinear or bicubic, or --aa none"
                )
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf or (name == "scale" and high > 1):
                raise DataError(
                    f"{name}: expected 0 < smallest <= largest{' <= 1' * (name == 'scale')}, "
                    f"got {(low, high)}"
                )

    @property
    def resamplings(self) -> tuple[Image.Resampling, ...]:
        """The filters that are drawn from."""
        if self.interpolation == "random":
            return RESAMPLINGS
        return (get_resampling(self.interpolation),)


@dataclass(frozen=True)
class Crop:
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


Jitter = tuple[tuple[int, float], ...]
"""Enhancement factors in the order in which they are applied: (position in JITTERS, factor)."""


@dataclass(frozen=True)
class TrainDraws:
    """Everything random about one image's transform.

    Attributes:
        crop: the part to keep, None for the centre (``no_aug``).
        resampling: of the resize after the crop.
        flip: mirror left and right.
        operations: of RandAugment.
        jitter: of the colours.
    """

    crop: Crop | None
    resampling: Image.Resampling
    flip: bool = False
    operations: tuple[DrawnOperation, ...] = ()
    jitter: Jitter = ()


def draw_crop(
    rng: np.random.Generator,
    height: int,
    width: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Crop:
    """A crop of random area and shape.

    Args:
        rng: asked for at most ten areas and shapes.
        height: of the image.
        width: of the image.
        scale: range of crop area / image area, uniform.
        ratio: range of crop width / crop height, uniform in the logarithm.

    Returns:
        A crop inside the image; when ten tries gave none that fits, the largest central one with a
        ratio in the range.
    """
    for _ in range(TRIES):
        area = rng.uniform(*scale) * (height * width)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        crop_width = round(math.sqrt(area * shape))
        crop_height = round(math.sqrt(area / shape))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(rng.integers(height - crop_height + 1))
            left = int(rng.integers(width - crop_width + 1))
            return Crop(top, left, crop_height, crop_width)
    crop_height, crop_width = height, width
    if width / height < ratio[0]:
        crop_height = max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        crop_width = max(1, round(height * ratio[1]))
    return Crop((height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width)


def draw_jitter(rng: np.random.Generator, strength: float) -> Jitter:
    """Factors from U(1 - strength, 1 + strength), in random order; none where the strength is 0."""
    if not strength:
        return ()
    order = rng.permutation(len(JITTERS))
    factors = [rng.uniform(1 - strength, 1 + strength) for _ in JITTERS]
    return tuple((int(kind), float(factors[kind])) for kind in order)


class TrainTransform:
    """The training transform.

    Args:
        config: its options.

    Attributes:
        config: the same.
        fill: colour of the places that RandAugment leaves behind: the mean, 0 to 255.
    """

    def __init__(self, config: AugmentConfig) -> None:
        self.config = config
        self.fill = tuple(min(255, round(255 * value)) for value in config.mean)
        self._policy = parse_randaugment(config.auto_augment) if config.auto_augment else None

    def draw(self, rng: np.random.Generator, size: tuple[int, int]) -> TrainDraws:
        """What to do to an image.

        Args:
            rng: of this image in this epoch.
            size: the image's (width, height).
        """
        config, (width, height) = self.config, size
        if config.no_aug:
            return TrainDraws(None, config.resamplings[0])
        crop = draw_crop(rng, height, width, config.scale, config.ratio)
        resampling = config.resamplings[rng.integers(len(config.resamplings))]
        flip = bool(rng.random() < config.hflip)
        if self._policy is not None:
            operations = draw_operations(rng, self._policy, config.resamplings)
            return TrainDraws(crop, resampling, flip, operations)
        jitter = draw_jitter(rng, config.color_jitter)
        return TrainDraws(crop, resampling, flip, jitter=jitter)

    def apply(self, image: Image.Image, draws: TrainDraws) -> np.ndarray:
        """uint8 (img_size, img_size, 3) of an RGB image."""
        size = self.config.img_size
        if draws.crop is None:
            return np.asarray(center_crop(resize_shorter(image, size, draws.resampling), size))
        crop = draws.crop
        corners = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        image = image.crop(corners).resize((size, size), draws.resampling)
        if draws.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for drawn in draws.operations:
            image = apply_operation(drawn.name, image, drawn.argument, drawn.resampling, self.fill)
        for kind, factor in draws.jitter:
            image = JITTERS[kind](image).enhance(factor)
        return np.asarray(image)

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """uint8 (img_size, img_size, 3): draw, then apply."""
        return self.apply(image, self.draw(rng, image.size))
