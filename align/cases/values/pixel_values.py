"""Step ``data`` for images: pixels of evaluation and RandAugment's operations against timm's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.cases.sides.picture_folder import SIZES, SMALL, draw_pictures
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.data import image_operations, image_transforms
from sot_torch_ref.train import image_transforms as reference_transforms

_LEVELS = {True: (0.0, 3.7, 9.0, 9.9), False: (2.6, 3.7, 9.0, 10.0)}
"""Magnitudes by set (increasing or not), without those at which timm fails: posterize to 0 bits."""

_BORDERED = 25
"""Side of a crop that is larger than the small pictures."""
_NARROW = ((40, 22), (22, 40))
"""Pictures that are smaller than it in one direction, by an odd number."""


def evaluation_transform(setting: Setting, *, size: int = 32, crop_pct: float = 0.875) -> BothSides:
    """Pixels of the evaluation transform.

    Args:
        setting: of the case.
        size: of the model's images.
        crop_pct: share of the resized image that the centre crop keeps.
    """
    pictures, small = draw_pictures((*SIZES, *SMALL)), draw_pictures((*SMALL, *_NARROW))

    def transformed(**changes: Any) -> Arrays:
        options = {"img_size": size, "crop_pct": crop_pct, **changes}
        crop = image_transforms.center_crop
        return _by_picture(image_transforms.EvalTransform(**options), pictures) | _by_picture(
            lambda picture: np.asarray(crop(picture, _BORDERED)), small, "border of "
        )

    ours = transformed()
    last = list(ours)[-1]
    faults = {
        "bilinear instead of bicubic": lambda: transformed(interpolation="bilinear"),
        "channels of the mean reversed": lambda: transformed(
            mean=image_transforms.IMAGENET_MEAN[::-1]
        ),
        "another crop": lambda: transformed(crop_pct=0.9 if crop_pct != 0.9 else 0.8),
        "a border one pixel lower": {**ours, last: np.roll(ours[last], 1, axis=0)},
    }
    transform = reference_transforms.eval_transform(size, crop_pct)
    reference = _by_picture(transform, pictures)
    crop = reference_transforms.centre_crop
    reference |= _by_picture(lambda one: np.array(crop(one, _BORDERED)), small, "border of ")
    return arrays_of_images(ours, reference, faults, "timm")


def _by_picture(transform: Any, pictures: list[Any], prefix: str = "") -> Arrays:
    return {f"{prefix}{index}": transform(picture) for index, picture in enumerate(pictures)}


def operations(setting: Setting) -> BothSides:
    """Pixels of every RandAugment operation, at several magnitudes."""
    pictures = draw_pictures()
    reference: Arrays = {}
    ours: Arrays = {}
    weaker: Arrays = {}
    for increasing, names in ((True, image_operations.INCREASING), (False, image_operations.PLAIN)):
        pairs = list(zip(pictures, _LEVELS[increasing], strict=True))
        reference |= _operated_by_timm(pairs, increasing)
        for name in names:
            for index, (picture, level) in enumerate(pairs):
                for arrays, magnitude in ((ours, level), (weaker, max(0.0, level - 2.5))):
                    argument = image_operations.level_to_argument(name, magnitude, bool(index % 2))
                    made = image_operations.apply_operation(name, picture, argument)
                    arrays[_key(increasing, name, level)] = np.asarray(made)
    mirrored = {name: array[:, ::-1].copy() for name, array in ours.items()}
    faults = {"magnitudes 2.5 lower": weaker, "mirrored images": mirrored}
    return arrays_of_images(ours, reference, faults, "timm")


def _operated_by_timm(pairs: list[tuple[Any, float]], increasing: bool) -> Arrays:
    """The sign of an operation is negative for every second pair of picture and magnitude."""
    found: Arrays = {}
    for name in reference_transforms.operation_names(increasing=increasing):
        for index, (picture, level) in enumerate(pairs):
            arguments = reference_transforms.level_arguments(name, level, negate=bool(index % 2))
            made = reference_transforms.apply_operation(name, picture, arguments)
            found[_key(increasing, name, level)] = np.array(made)
    return found


def _key(increasing: bool, name: str, level: float) -> str:
    return f"{'increasing' if increasing else 'plain'}/{name}/{level}"


def pixel_rule(array: np.ndarray) -> Tolerance:
    """Floating pixels to rounding, everything else exactly."""
    return TOLERANCES["pixels" if array.dtype.kind == "f" else "data", None]


def arrays_of_images(
    ours: Arrays, reference: Arrays, faults: Mapping[str, Any], library: str
) -> BothSides:
    """Both sides' arrays by name: pixels to rounding, whole numbers exactly.

    Args:
        ours: of the product.
        reference: of the ``library``.
        faults: name to what the product makes with it, or a function that lets it.
        library: of the reference.
    """
    return BothSides(
        ours,
        reference,
        faults,
        "our arrays",
        rule=lambda name: pixel_rule(reference[name]),
        framework_free=True,
        note=f"{len(ours)} arrays; ours: NumPy and Pillow, reference: {library}",
    )
