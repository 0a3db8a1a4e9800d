"""RandAugment on Pillow images: which operations, how strong; drawn apart from applied.

The default recipe is ``rand-m9-mstd0.5-inc1``: two of fifteen operations per image, with
repetition, each carried out with probability one half at a magnitude from N(9, .5) clipped to
0..10. The values are those of timm 0.3.4 (specs.md A.9). Its successor 1.0.31 computes the same for
magnitudes from 0 to 10, but for the last bit of the enhancement factor .1 at magnitude 10; it also
accepts larger ones, which are not offered here, nor is the set of operations without ``inc1``, of
which some become weaker with the magnitude.

QUIRK: at magnitude 10 (2 % of the draws of rand-m9-mstd0.5) PosterizeIncreasing keeps no bit, which
gives a black image. Pillow 13 refuses 0 bits, so timm stops there today; here the image is black.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

MAX_MAGNITUDE = 10.0
NAMES = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing"),
    *("SolarizeAdd", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing"),
    *("SharpnessIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
"""The set of ``inc1`` by timm's names, in the order in which timm draws."""

_FIXED = {
    "AutoContrast": ImageOps.autocontrast,
    "Equalize": ImageOps.equalize,
    "Invert": ImageOps.invert,
}
_ENHANCERS = {
    "ColorIncreasing": ImageEnhance.Color,
    "ContrastIncreasing": ImageEnhance.Contrast,
    "BrightnessIncreasing": ImageEnhance.Brightness,
    "SharpnessIncreasing": ImageEnhance.Sharpness,
}
_STRONGEST = {"Rotate": 30.0, "ShearX": 0.3, "ShearY": 0.3}
_STRONGEST |= {"TranslateXRel": 0.45, "TranslateYRel": 0.45}
_MATRICES: Mapping[str, Callable[[float, int, int], tuple[float, ...]]] = {
    "ShearX": lambda factor, width, height: (1, factor, 0, 0, 1, 0),
    "ShearY": lambda factor, width, height: (1, 0, 0, factor, 1, 0),
    "TranslateXRel": lambda part, width, height: (1, 0, part * width, 0, 1, 0),
    "TranslateYRel": lambda part, width, height: (1, 0, 0, 0, 1, part * height),
}
"""Name -> the affine matrix (output to input place) of argument and size."""

Argument = float | int | None


def level_to_argument(name: str, magnitude: float, negate: bool = False) -> Argument:
    """The argument of an operation.

    Args:
        magnitude: from 0 to 10.
        negate: whether an operation with a sign takes the negative direction.

    Returns:
        Degrees (Rotate, up to 30), a shear factor (up to .3), a part of the width or height
        (Translate, up to .45), bits to keep (Posterize), a threshold (Solarize), a summand
        (SolarizeAdd, up to 110) or an enhancement factor; None where there is no argument.
    """
    part = magnitude / MAX_MAGNITUDE
    if name in _FIXED:
        return None
    if name in _STRONGEST:
        return -part * _STRONGEST[name] if negate else part * _STRONGEST[name]
    if name == "SolarizeAdd":
        return int(part * 110)
    if name == "PosterizeIncreasing":
        return 4 - int(part * 4)
    if name == "SolarizeIncreasing":
        return 256 - int(part * 256)
    return 1.0 + (-part * 0.9 if negate else part * 0.9)


def apply_operation(
    name: str,
    image: Image.Image,
    argument: Argument,
    resampling: Image.Resampling = Image.Resampling.BICUBIC,
    fill: tuple[int, ...] = (128, 128, 128),
) -> Image.Image:
    """One operation on one RGB image; ``fill`` is the colour of what moved pixels leave behind."""
    if name in _FIXED:
        return _FIXED[name](image)
    if name in _ENHANCERS:
        return _ENHANCERS[name](image).enhance(argument)
    if name in _MATRICES:
        matrix, kind = _MATRICES[name](argument, *image.size), Image.Transform.AFFINE
        return image.transform(image.size, kind, matrix, resample=resampling, fillcolor=fill)
    if name == "Rotate":
        return image.rotate(argument, resampling, fillcolor=fill)
    if name == "SolarizeIncreasing":
        return ImageOps.solarize(image, argument)
    if name == "PosterizeIncreasing":  # the highest bits; none is left at magnitude 10
        table = [value & (256 - 2 ** (8 - argument)) for value in range(256)]
    else:  # SolarizeAdd: what is darker than 128 becomes brighter
        table = [value + argument if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


RESAMPLINGS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
SECTIONS = "m9 (magnitude), n2 (operations), mstd0.5 (deviation), p0.5 (probability), inc1"
_SECTION = re.compile(r"(mstd|p|[mn](?=\d+$)|inc(?=1$))(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class RandAugmentConfig:
    """Options of RandAugment; the defaults are those of a bare ``rand-inc1``."""

    magnitude: float = MAX_MAGNITUDE  # mean magnitude; values above 10 act like 10
    layers: int = 2
    std: float = 0.0
    prob: float = 0.5  # of each operation; values above 1 act like 1


_OPTIONS: Mapping[str, tuple[str, type]] = {
    "m": ("magnitude", float),
    "n": ("layers", int),
    "mstd": ("std", float),
    "p": ("prob", float),
}
"""Section of a policy's text -> the option that it sets, and how its number is read."""


def parse_randaugment(text: str) -> RandAugmentConfig:
    """Read a string like ``rand-m9-mstd0.5-inc1``; a ValueError for what is none."""
    policy, *sections = text.split("-")
    if policy != "rand":
        raise ValueError(
            f"auto-augment: expected rand-..., for example rand-m9-mstd0.5-inc1, got {text!r}; "
            "the AutoAugment and AugMix policies are not offered"
        )
    values: dict[str, str] = {}
    for section in sections:
        match = _SECTION.fullmatch(section)
        if match is None:
            raise ValueError(
                f"auto-augment {text!r}: unknown section {section!r}; expected {SECTIONS}"
            )
        values[match[1]] = match[2]
    if "inc" not in values:
        raise ValueError(
            f"auto-augment {text!r}: expected inc1 in it; the operations of timm without inc1 are "
            "not offered"
        )
    options = {name: kind(values[key]) for key, (name, kind) in _OPTIONS.items() if key in values}
    return RandAugmentConfig(**options)


@dataclass(frozen=True)
class DrawnOperation:
    """One operation to carry out."""

    name: str
    argument: Argument
    resampling: Image.Resampling


def draw_operations(
    rng: np.random.Generator,
    config: RandAugmentConfig,
    resamplings: tuple[Image.Resampling, ...] = RESAMPLINGS,
) -> tuple[DrawnOperation, ...]:
    """Draw what to do to one image: at most ``config.layers`` operations, in order.

    ``rng`` advances by the same number of draws whatever they give.
    """
    operations = []
    for _ in range(config.layers):
        name = NAMES[rng.integers(len(NAMES))]
        carried_out = rng.random() < config.prob
        magnitude = config.magnitude + config.std * rng.standard_normal()
        negate = bool(rng.random() < 0.5)
        resampling = resamplings[rng.integers(len(resamplings))]
        if carried_out:
            argument = level_to_argument(name, min(max(magnitude, 0.0), MAX_MAGNITUDE), negate)
            operations.append(DrawnOperation(name, argument, resampling))
    return tuple(operations)
