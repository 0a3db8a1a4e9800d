"""The published training transform of one image, derived from uniform draws.

The draws, in this order: for each attempt at a crop its area and its shape, and where it fits its
row and column; the interpolation; the flip; then for each layer of RandAugment the operation,
whether it is carried out, its magnitude (normal), its sign and its interpolation; without
RandAugment the order of the three colour changes and their factors. Crop and resize are
torchvision's, RandAugment (its string, set, levels and operations) is timm's.

Source: specs A.9; torchvision RandomResizedCrop and ColorJitter, timm RandAugment.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
from PIL import Image

from sot_torch_ref.train.image_transforms import IMAGENET_MEAN, RAND_AUGMENT
from sot_torch_ref.train.uniform_draws import UniformDraws

ATTEMPTS = 10
RESAMPLINGS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CropBox = tuple[int, int, int, int]
"""Top row, left column, height, width."""


@dataclass(frozen=True)
class TrainingRecipe:
    """The transform's options; the defaults are the published ones.

    Attributes:
        img_size: Side of the result in pixels.
        scale: Range of the crop's share of the area.
        ratio: Range of the crop's width / height.
        interpolation: ``random`` draws bilinear or bicubic, else the one of that name.
        hflip: Probability of a horizontal flip.
        auto_augment: timm's RandAugment string, None for none.
        color_jitter: Strength of brightness, contrast and saturation, inert beside RandAugment.
        no_aug: Resize the short side and crop the centre instead; nothing is drawn.
        mean: Of the normalisation; RandAugment fills with round(255 mean).
    """

    img_size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: str = "random"
    hflip: float = 0.5
    auto_augment: str | None = RAND_AUGMENT
    color_jitter: float = 0.4
    no_aug: bool = False
    mean: tuple[float, float, float] = IMAGENET_MEAN

    @property
    def resamplings(self) -> list[Image.Resampling]:
        """What an interpolation is drawn from."""
        names = list(RESAMPLINGS) if self.interpolation == "random" else [self.interpolation]
        return [RESAMPLINGS[name] for name in names]


@dataclass
class TransformedImage:
    """What happened to an image.

    Attributes:
        pixels: uint8 (S, S, 3).
        crop: The part that was kept, None with ``no_aug``.
        flipped: Left and right exchanged.
        operations: Name and arguments of each operation that was carried out.
        factors: (position in brightness, contrast, saturation; factor) in order.
    """

    pixels: np.ndarray
    crop: CropBox | None = None
    flipped: bool = False
    operations: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)
    factors: list[tuple[int, float]] = field(default_factory=list)


def transform_image(
    image: Image.Image, draws: UniformDraws, recipe: TrainingRecipe
) -> TransformedImage:
    """Transform an RGB image as in training."""
    from torchvision.transforms import functional

    size = recipe.img_size
    if recipe.no_aug:
        chosen = _torchvision_filter(recipe.resamplings[0])
        resized = functional.resize(image, size, chosen)
        return TransformedImage(np.array(functional.center_crop(resized, [size, size])))
    crop = crop_box(draws, image.height, image.width, recipe.scale, recipe.ratio)
    chosen = recipe.resamplings[draws.whole(len(recipe.resamplings))]
    image = functional.resized_crop(image, *crop, [size, size], _torchvision_filter(chosen))
    flipped = draws.chance(recipe.hflip)
    if flipped:
        image = functional.hflip(image)
    result = TransformedImage(np.empty(0), crop, flipped)
    if recipe.auto_augment is not None:
        image, result.operations = rand_augmented(image, draws, recipe)
    elif recipe.color_jitter:
        image, result.factors = _jittered(image, draws, recipe.color_jitter)
    result.pixels = np.array(image)
    return result


def _torchvision_filter(resampling: Image.Resampling):
    from torchvision.transforms import InterpolationMode

    return InterpolationMode(resampling.name.lower())


def crop_box(
    draws: UniformDraws,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> CropBox:
    """A part of random area and shape; after ten attempts the largest central one in the ratio."""
    for _ in range(ATTEMPTS):
        area = height * width * draws.between(*scale)
        shape = math.exp(draws.between(math.log(ratio[0]), math.log(ratio[1])))
        wide, tall = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < wide <= width and 0 < tall <= height:
            return draws.whole(height - tall + 1), draws.whole(width - wide + 1), tall, wide
    own = width / height
    tall = round(width / ratio[0]) if own < ratio[0] else height
    wide = round(height * ratio[1]) if own > ratio[1] else width
    return (height - tall) // 2, (width - wide) // 2, tall, wide


class _LayerSource:
    """Serves timm's ``random`` with the draws of one layer."""

    def __init__(self, draws: UniformDraws) -> None:
        carried, normal, negative = draws.unit(), float(draws.normal()), draws.unit()
        self._normal, self._choice = normal, draws.unit()
        self._units = iter((carried, 1.0 - negative))  # timm negates above one half

    def random(self) -> float:
        """First whether the operation is carried out, then its sign."""
        return next(self._units)

    def gauss(self, mean: float, deviation: float) -> float:
        """The magnitude."""
        return mean + deviation * self._normal

    def choice(self, options: Sequence):
        """The interpolation."""
        return options[math.floor(self._choice * len(options))]


def rand_augmented(
    image: Image.Image, draws: UniformDraws, recipe: TrainingRecipe
) -> tuple[Image.Image, list[tuple[str, tuple[float, ...]]]]:
    """timm's RandAugment under given draws.

    Returns:
        The image, and name and arguments of each operation that was carried out.
    """
    from timm.data import auto_augment

    fill = tuple(min(255, round(255 * value)) for value in recipe.mean)
    options = {"img_mean": fill, "translate_pct": 0.45}
    if recipe.interpolation != "random":
        options["interpolation"] = RESAMPLINGS[recipe.interpolation]
    policy = auto_augment.rand_augment_transform(recipe.auto_augment, options)
    done: list[tuple[str, tuple[float, ...]]] = []
    for _ in range(policy.num_layers):
        operation = policy.ops[draws.whole(len(policy.ops))]
        function = auto_augment.NAME_TO_OP[operation.name]

        def recorded(image, *arguments, name=operation.name, function=function, **keys):
            done.append((name, arguments))
            return function(image, *arguments, **keys)

        operation.aug_fn = recorded
        with mock.patch.object(auto_augment, "random", _LayerSource(draws)):
            image = operation(image)
    return image, done


def _jittered(
    image: Image.Image, draws: UniformDraws, strength: float
) -> tuple[Image.Image, list[tuple[int, float]]]:
    from torchvision.transforms import functional

    adjust = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
    )
    order = draws.order(len(adjust))
    factors = [draws.between(1.0 - strength, 1.0 + strength) for _ in adjust]
    for place in order:
        image = adjust[place](image, factors[place])
    return image, [(place, factors[place]) for place in order]
