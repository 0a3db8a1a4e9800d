"""The evaluation transform, and how pixels become the model's numbers.

Pixel for pixel timm's and torchvision's: shorter side to ``floor(img_size / crop_pct)``, centre
crop, division by 255, then mean and standard deviation. Source: specs.md A.9.

Shape legend: B images, H rows, W columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from sot_paddle.data.errors import DataError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LATER = ("exif_orientation",)
"""Options of the evaluation transform that records of older versions lack: they had its default."""
RESAMPLING = {kind.name.lower(): kind for kind in Image.Resampling}


def get_resampling(name: str) -> Image.Resampling:
    """Pillow's filter of that name.

    Raises:
        DataError: there is no such filter.
    """
    if name not in RESAMPLING:
        raise DataError(f"interpolation: expected one of {', '.join(RESAMPLING)}, got {name!r}")
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
    pixels: np.ndarray,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
) -> np.ndarray:
    """(pixels / 255 - mean) / std, in float32 and in this order (torchvision's evaluation).

    Args:
        pixels: uint8 (H, W, 3).
        mean: per channel, for pixels from 0 to 1.
        std: likewise.

    Returns:
        float32 (3, H, W).
    """
    result = pixels.transpose(2, 0, 1).astype(np.float32, order="C")  # (3, H, W)
    result /= np.float32(255)
    result -= np.array(mean, dtype=np.float32)[:, None, None]
    result /= np.array(std, dtype=np.float32)[:, None, None]
    return result


def normalize_batch(
    pixels: np.ndarray,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
) -> np.ndarray:
    """(pixels - 255 mean) / (255 std), in float32: the arithmetic of the original's train loader.

    The last bits differ from :func:`normalize_image`.

    Args:
        pixels: uint8 (B, H, W, 3).
        mean: per channel, for pixels from 0 to 1.
        std: likewise.

    Returns:
        float32 (B, 3, H, W).
    """
    result = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")  # (B, 3, H, W)
    result -= np.array([value * 255 for value in mean], dtype=np.float32)[:, None, None]
    result /= np.array([value * 255 for value in std], dtype=np.float32)[:, None, None]
    return result


@dataclass(frozen=True)
class EvalTransform:
    """The original's evaluation transform.

    Attributes:
        img_size: of the square output, in pixels.
        crop_pct: part of the shorter side that the crop keeps, above 0 to 1.
        interpolation: of the resize.
        mean: per channel, for pixels from 0 to 1.
        std: likewise.
        exif_orientation: whether whoever decodes an image turns it as its EXIF says.

    Raises:
        DataError: impossible values.
    """

    img_size: int = 224
    crop_pct: float = 0.875
    interpolation: str = "bicubic"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    exif_orientation: bool = False

    def __post_init__(self) -> None:
        if self.img_size < 1:
            raise DataError(f"img_size: expected a number of pixels from 1, got {self.img_size!r}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            good = len(values) == 3 and all(math.isfinite(value) for value in values)
            if not good or (name == "std" and min(values) <= 0):
                raise DataError(
                    f"{name}: expected three finite numbers{' above 0' * (name == 'std')} for "
                    f"pixels from 0 to 1, got {values!r}"
                )
        get_resampling(self.interpolation)
        if not 0 < self.crop_pct <= 1:
            raise DataError(f"crop_pct: expected above 0 to 1, got {self.crop_pct!r}")

    def crop(self, image: Image.Image) -> np.ndarray:
        """uint8 (img_size, img_size, 3): resized and cropped."""
        shorter = math.floor(self.img_size / self.crop_pct)
        resized = resize_shorter(image, shorter, get_resampling(self.interpolation))
        return np.asarray(center_crop(resized, self.img_size))

    def __call__(self, image: Image.Image) -> np.ndarray:
        """float32 (3, img_size, img_size), normalised."""
        return normalize_image(self.crop(image), self.mean, self.std)
