"""The operations of RandAugment on Pillow images, and how a magnitude becomes their argument.

The values are those of timm 0.3.4 (specs.md A.9). Its successor 1.0.31 computes the same for
magnitudes from 0 to 10, but for the last bit of the enhancement factor .1 at magnitude 10; it also
accepts larger ones, which are not offered here.

QUIRK: at magnitude 10 (2 % of the draws of rand-m9-mstd0.5) PosterizeIncreasing keeps no bit, which
gives a black image. Pillow 13 refuses 0 bits, so timm stops there today; here the image is black.

Every operation takes (image, argument, resampling, fill) and ignores what it does not need, so
each can be compared with another library's under the same argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PIL import Image, ImageEnhance, ImageOps

MAX_MAGNITUDE = 10.0
FIXED = ("AutoContrast", "Equalize", "Invert")
SPATIAL = ("Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")

Argument = float | int | None
Operation = Callable[[Image.Image, Argument, Image.Resampling, tuple[int, ...]], Image.Image]


def level_to_argument(name: str, magnitude: float, negate: bool = False) -> Argument:
    """The argument of an operation.

    Args:
        name: of the operation (``INCREASING`` or ``PLAIN``).
        magnitude: from 0 to 10.
        negate: whether an operation with a sign takes the negative direction.

    Returns:
        Degrees (Rotate, up to 30), a shear factor (up to .3), a part of the width or height
        (Translate, up to .45), bits to keep (Posterize), a threshold (Solarize), a summand
        (SolarizeAdd, up to 110) or an enhancement factor; None where there is no argument.
    """
    part = magnitude / MAX_MAGNITUDE
    if name in FIXED:
        return None
    if name in SPATIAL:
        strongest = 30.0 if name == "Rotate" else 0.3 if name.startswith("Shear") else 0.45
        return -part * strongest if negate else part * strongest
    if name == "SolarizeAdd":
        return int(part * 110)
    if name.startswith("Posterize"):
        bits = int(part * 4)
        return 4 - bits if name.endswith("Increasing") else bits
    if name.startswith("Solarize"):
        threshold = int(part * 256)
        return 256 - threshold if name.endswith("Increasing") else threshold
    if name.endswith("Increasing"):
        return 1.0 + (-part * 0.9 if negate else part * 0.9)
    return part * 1.8 + 0.1


def apply_operation(
    name: str,
    image: Image.Image,
    argument: Argument,
    resampling: Image.Resampling = Image.Resampling.BICUBIC,
    fill: tuple[int, ...] = (128, 128, 128),
) -> Image.Image:
    """One operation on one RGB image; the image itself is not changed.

    Args:
        name: of the operation.
        image: of mode RGB.
        argument: from :func:`level_to_argument`.
        resampling: for operations that move pixels.
        fill: colour of the places that moved pixels leave behind.
    """
    return OPERATIONS[name.removesuffix("Increasing")](image, argument, resampling, fill)


def _affine(matrix: Callable[[Image.Image, float], tuple[float, ...]]) -> Operation:
    """An operation that moves pixels by the affine matrix (output to input place)."""

    def operate(image, argument, resampling, fill):
        return image.transform(
            image.size,
            Image.Transform.AFFINE,
            matrix(image, argument),
            resample=resampling,
            fillcolor=fill,
        )

    return operate


def _enhance(kind: type) -> Operation:
    return lambda image, factor, _resampling, _fill: kind(image).enhance(factor)


def _posterize(image, bits, _resampling, _fill):
    """Keep the highest bits of each number; none is left at magnitude 10."""
    mask = 256 - 2 ** (8 - bits)
    return image.point([value & mask for value in range(256)] * len(image.getbands()))


def _solarize_add(image, summand, _resampling, _fill):
    """Brighten what is darker than 128."""
    table = [value + summand if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


def _without_argument(function: Callable[[Image.Image], Image.Image]) -> Operation:
    return lambda image, _argument, _resampling, _fill: function(image)


OPERATIONS: Mapping[str, Operation] = {
    "AutoContrast": _without_argument(ImageOps.autocontrast),
    "Equalize": _without_argument(ImageOps.equalize),
    "Invert": _without_argument(ImageOps.invert),
    "Rotate": lambda image, degrees, kind, fill: image.rotate(degrees, kind, fillcolor=fill),
    "Posterize": _posterize,
    "Solarize": lambda image, threshold, _kind, _fill: ImageOps.solarize(image, threshold),
    "SolarizeAdd": _solarize_add,
    "Color": _enhance(ImageEnhance.Color),
    "Contrast": _enhance(ImageEnhance.Contrast),
    "Brightness": _enhance(ImageEnhance.Brightness),
    "Sharpness": _enhance(ImageEnhance.Sharpness),
    "ShearX": _affine(lambda _image, factor: (1, factor, 0, 0, 1, 0)),
    "ShearY": _affine(lambda _image, factor: (1, 0, 0, factor, 1, 0)),
    "TranslateXRel": _affine(lambda image, part: (1, 0, part * image.width, 0, 1, 0)),
    "TranslateYRel": _affine(lambda image, part: (1, 0, 0, 0, 1, part * image.height)),
}
"""By name in `PLAIN`, in the order in which timm draws."""

PLAIN = tuple(OPERATIONS)
"""The set without ``inc1``."""

INCREASING = tuple(
    name if name in (*FIXED, *SPATIAL, "SolarizeAdd") else f"{name}Increasing" for name in PLAIN
)
"""The set of ``inc1``: each operation becomes stronger with the magnitude."""
