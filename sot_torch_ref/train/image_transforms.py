"""Image transforms of timm itself: evaluation preprocessing and the operations of RandAugment.

These functions only call timm, so that pixels can be compared with timm's and not with a
re-implementation. timm is imported inside them: it takes seconds.

Source: specs A.9.
"""

from collections.abc import Callable
from unittest import mock

import numpy as np
from PIL import Image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
RAND_AUGMENT = "rand-m9-mstd0.5-inc1"
FILL = (128, 128, 128)


def eval_transform(
    img_size: int = 224,
    crop_pct: float = 0.875,
    mean: tuple[float, float, float] = IMAGENET_MEAN,
    std: tuple[float, float, float] = IMAGENET_STD,
) -> Callable[[Image.Image], np.ndarray]:
    """Evaluation preprocessing: resize the short side, centre crop, normalise.

    Args:
        img_size: Pixels of the crop; the short side is resized to floor(img_size / crop_pct).
        crop_pct: In (0, 1].
        mean, std: Of the channels, for values in [0, 1].

    Returns:
        Function, RGB image -> (3, img_size, img_size), in torch's default dtype.
    """
    from timm.data import create_transform

    transform = create_transform(
        input_size=img_size,
        is_training=False,
        interpolation="bicubic",
        mean=mean,
        std=std,
        crop_pct=crop_pct,
    )

    def apply(image: Image.Image) -> np.ndarray:
        return transform(image).numpy()

    return apply


def centre_crop(image: Image.Image, size: int) -> Image.Image:
    """torchvision's central ``size`` x ``size`` pixels; a smaller image gets a black border."""
    from torchvision.transforms import functional

    return functional.center_crop(image, [size, size])


def operation_names() -> list[str]:
    """The operations of RandAugment with increasing severity, in timm's order."""
    from timm.data.auto_augment import rand_augment_choices

    return list(rand_augment_choices("", increasing=True))


def level_arguments(name: str, level: float, *, negate: bool = False) -> tuple:
    """Arguments of an operation at a magnitude.

    Args:
        name: One of ``operation_names()``.
        level: Magnitude in [0, 10].
        negate: The draw of the sign, for operations that have one.

    Returns:
        Zero or one number.
    """
    from timm.data import auto_augment

    to_arguments = auto_augment.LEVEL_TO_ARG[name]
    if to_arguments is None:
        return ()
    sign = -1.0 if negate else 1.0
    with mock.patch.object(auto_augment, "_randomly_negate", lambda value: sign * value):
        return to_arguments(level, {"translate_pct": 0.45})


def apply_operation(
    name: str,
    image: Image.Image,
    arguments: tuple,
    *,
    resample: int = Image.Resampling.BICUBIC,
    fill: tuple[int, int, int] = FILL,
) -> Image.Image:
    """Apply one operation of RandAugment.

    Args:
        name: One of ``operation_names()``.
        image: RGB image.
        arguments: See ``level_arguments``.
        resample: Draw of the interpolation, for geometric operations.
        fill: Colour of the pixels that come from outside; the recipe fills with
            round(255 mean) of the normalisation.

    Returns:
        RGB image of the same size.
    """
    from timm.data.auto_augment import NAME_TO_OP

    return NAME_TO_OP[name](image, *arguments, fillcolor=fill, resample=resample)
