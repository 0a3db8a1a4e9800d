"""The transforms of one image, for evaluation and for training, and how pixels become numbers.

Evaluation is pixel for pixel timm's and torchvision's: shorter side to ``floor(img_size /
crop_pct)``, centre crop, division by 255, then mean and standard deviation. Training: crop, flip,
RandAugment. Drawing is apart from applying: :meth:`TrainTransform.draw` turns a
generator into a record of numbers, :meth:`TrainTransform.apply` turns image and record into pixels.
Normalisation, random erasing and mixing follow when the batch is put together. Source: A.9.

Shape legend: B images, H rows, W columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from sot_paddle.data import image_randaugment

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
TRIES = 10
RESAMPLING = {kind.name.lower(): kind for kind in Image.Resampling}


def get_resampling(name: str) -> Image.Resampling:
    """Pillow's filter of that name; refuses others with a ValueError."""
    if name not in RESAMPLING:
        raise ValueError(f"interpolation: expected one of {', '.join(RESAMPLING)}, got {name!r}")
    return RESAMPLING[name]


def resize_shorter(image: Image.Image, size: int, resampling: Image.Resampling) -> Image.Image:
    """Resize so that the shorter side has ``size`` pixels; the longer side is rounded down."""
    width, height = image.size
    longer = int(size * max(width, height) / min(width, height))
    target = (size, longer) if width <= height else (longer, size)
    return image if image.size == target else image.resize(target, resampling)


def center_crop(image: Image.Image, size: int) -> Image.Image:
    """The central ``size`` x ``size`` pixels; a smaller image gets a black border.

    An odd margin is halved to the even number, as Python and torchvision round.
    """
    width, height = image.size
    if width < size or height < size:
        padded = Image.new(image.mode, (max(width, size), max(height, size)))
        padded.paste(image, (max(0, size - width) // 2, max(0, size - height) // 2))
        image, (width, height) = padded, padded.size
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def normalize_image(
    pixels: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(pixels / 255 - mean) / std, in float32 and in this order (torchvision's evaluation).

    Maps uint8 (H, W, 3) to float32 (3, H, W).
    """
    result = pixels.transpose(2, 0, 1).astype(np.float32, order="C")  # (3, H, W)
    result /= np.float32(255)
    result -= np.array(mean, dtype=np.float32)[:, None, None]
    result /= np.array(std, dtype=np.float32)[:, None, None]
    return result


def normalize_batch(
    pixels: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(pixels - 255 mean) / (255 std), in float32: the arithmetic of the original's train loader.

    Maps uint8 (B, H, W, 3) to float32 (B, 3, H, W); the last bits differ from
    :func:`normalize_image`.
    """
    result = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")  # (B, 3, H, W)
    result -= np.array([value * 255 for value in mean], dtype=np.float32)[:, None, None]
    result /= np.array([value * 255 for value in std], dtype=np.float32)[:, None, None]
    return result


@dataclass(frozen=True)
class EvalTransform:
    """The original's evaluation transform; a ValueError for other filters and statistics."""

    img_size: int = 224  # of the square output, in pixels
    crop_pct: float = 0.875  # part of the shorter side that the crop keeps, above 0 to 1
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = IMAGENET_MEAN  # per channel, for pixels from 0 to 1
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            good = len(values) == 3 and all(math.isfinite(value) for value in values)
            if not good or (name == "std" and min(values) <= 0):
                raise ValueError(
                    f"{name}: expected three finite numbers{' above 0' * (name == 'std')} for "
                    f"pixels from 0 to 1, got {values!r}"
                )
        get_resampling(self.interpolation)

    def crop(self, image: Image.Image) -> np.ndarray:
        """uint8 (img_size, img_size, 3): resized and cropped."""
        shorter = math.floor(self.img_size / self.crop_pct)
        resized = resize_shorter(image, shorter, get_resampling(self.interpolation))
        return np.asarray(center_crop(resized, self.img_size))

    def __call__(self, image: Image.Image) -> np.ndarray:
        """float32 (3, img_size, img_size), normalised."""
        return normalize_image(self.crop(image), self.mean, self.std)


@dataclass(frozen=True)
class AugmentConfig:
    """Options of the training transform; the defaults are the published recipe.

    Raises:
        ValueError: a range or a filter that cannot be.
    """

    img_size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)  # smallest and largest part of the area of a crop
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # smallest and largest width / height of a crop
    interpolation: str = "random"  # random: bilinear or bicubic, also for RandAugment
    hflip: float = 0.5
    auto_augment: str | None = "rand-m9-mstd0.5-inc1"
    no_aug: bool = False  # resize the shorter side and crop the centre, nothing else
    mean: tuple[float, ...] = IMAGENET_MEAN  # per channel, from 0 to 1; RandAugment's fill colour
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if self.interpolation != "random":
            get_resampling(self.interpolation)
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf or (name == "scale" and high > 1):
                raise ValueError(
                    f"{name}: expected 0 < smallest <= largest{' <= 1' * (name == 'scale')}, "
                    f"got {(low, high)}"
                )

    @property
    def resamplings(self) -> tuple[Image.Resampling, ...]:
        """The filters that are drawn from."""
        if self.interpolation == "random":
            return image_randaugment.RESAMPLINGS
        return (get_resampling(self.interpolation),)


@dataclass(frozen=True)
class Crop:
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class TrainDraws:
    """Everything random about one image's transform."""

    crop: Crop | None  # the part to keep, None for the centre (``no_aug``)
    resampling: Image.Resampling
    flip: bool = False
    operations: tuple[image_randaugment.DrawnOperation, ...] = ()


def draw_crop(
    rng: np.random.Generator,
    height: int,
    width: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Crop:
    """A crop of random area and shape inside the image.

    ``scale`` is the range of crop area / image area, uniform, ``ratio`` that of width / height,
    uniform in the logarithm. When ten tries gave none that fits: the largest central one in range.
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


class TrainTransform:
    """The training transform."""

    def __init__(self, config: AugmentConfig) -> None:
        self.config = config
        # of the places that RandAugment leaves behind
        self.fill = tuple(min(255, round(255 * value)) for value in config.mean)
        policy = config.auto_augment
        self._policy = image_randaugment.parse_randaugment(policy) if policy else None

    def draw(self, rng: np.random.Generator, size: tuple[int, int]) -> TrainDraws:
        """What to do to an image of a size (width, height); ``rng`` is its own in this epoch."""
        config, (width, height) = self.config, size
        if config.no_aug:
            return TrainDraws(None, config.resamplings[0])
        crop = draw_crop(rng, height, width, config.scale, config.ratio)
        resampling = config.resamplings[rng.integers(len(config.resamplings))]
        flip = bool(rng.random() < config.hflip)
        if self._policy is None:
            return TrainDraws(crop, resampling, flip)
        operations = image_randaugment.draw_operations(rng, self._policy, config.resamplings)
        return TrainDraws(crop, resampling, flip, operations)

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
        for op in draws.operations:
            image = image_randaugment.apply_operation(
                op.name, image, op.argument, op.resampling, self.fill
            )
        return np.asarray(image)

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> np.ndarray:
        """uint8 (img_size, img_size, 3): draw, then apply."""
        return self.apply(image, self.draw(rng, image.size))
