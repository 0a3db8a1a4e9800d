"""Step ``data`` for images: pixels of evaluation and RandAugment's operations against timm's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import PixelCase
from align.cases.planted_controls import judge
from align.cases.sides import torch_side
from align.cases.sides.picture_folder import SIZES, SMALL, draw_pictures
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, ControlResult, StepResult, Tolerance
from sot_paddle.data import image_operations, image_transforms

_LEVELS = {True: (0.0, 3.7, 9.0, 9.9), False: (2.6, 3.7, 9.0, 10.0)}
"""Magnitudes by set (increasing or not), without those at which timm fails: posterize to 0 bits."""

_BORDERED = 25
"""Side of a crop that is larger than the small pictures."""

Compare = Callable[[Arrays], list[Comparison]]


def run_pixels(case: PixelCase, dtype: None, context: Context) -> StepResult:
    """Compare pixels of the evaluation transform, or of every RandAugment operation."""
    ours, reference, faults = _operations() if case.operations else _evaluation(case)
    return _result(case, ours, reference, faults, "timm")


def _evaluation(case: PixelCase) -> tuple[Arrays, Arrays, dict[str, Arrays]]:
    pictures = draw_pictures((*SIZES, *SMALL))

    def transformed(**changes) -> Arrays:
        transform = image_transforms.EvalTransform(
            **{"img_size": case.size, "crop_pct": case.crop_pct, **changes}
        )
        found = {f"{index}": transform(picture) for index, picture in enumerate(pictures)}
        crop = image_transforms.center_crop
        return found | {f"border of {i}": np.asarray(crop(p, _BORDERED)) for i, p in bordered}

    bordered = list(enumerate(draw_pictures(SMALL)))
    reference = torch_side.evaluation_pixels(pictures, case.size, case.crop_pct)
    reference |= torch_side.centre_crops([picture for _, picture in bordered], _BORDERED)
    swapped = image_transforms.IMAGENET_MEAN[::-1]
    ours = transformed()
    last = list(ours)[-1]
    return (
        ours,
        reference,
        {
            "bilinear instead of bicubic": transformed(interpolation="bilinear"),
            "channels of the mean reversed": transformed(mean=swapped),
            "another crop": transformed(crop_pct=0.9 if case.crop_pct != 0.9 else 0.8),
            "a border one pixel lower": {**ours, last: np.roll(ours[last], 1, axis=0)},
        },
    )


def _operations() -> tuple[Arrays, Arrays, dict[str, Arrays]]:
    pictures = draw_pictures()
    reference: Arrays = {}
    ours: Arrays = {}
    weaker: Arrays = {}
    for increasing, names in ((True, image_operations.INCREASING), (False, image_operations.PLAIN)):
        pairs = list(zip(pictures, _LEVELS[increasing], strict=True))
        reference |= torch_side.operated(pairs, increasing)
        for name in names:
            for index, (picture, level) in enumerate(pairs):
                key = f"{'increasing' if increasing else 'plain'}/{name}/{level}"
                for arrays, magnitude in ((ours, level), (weaker, max(0.0, level - 2.5))):
                    argument = image_operations.level_to_argument(name, magnitude, bool(index % 2))
                    made = image_operations.apply_operation(name, picture, argument)
                    arrays[key] = np.asarray(made)
    mirrored = {name: array[:, ::-1].copy() for name, array in ours.items()}
    return ours, reference, {"magnitudes 2.5 lower": weaker, "mirrored images": mirrored}


def _result(
    case: PixelCase,
    ours: Arrays,
    reference: Arrays,
    faults: dict[str, Arrays],
    against: str,
) -> StepResult:
    def rule(name: str) -> Tolerance:
        kind = "pixels" if reference[name].dtype.kind == "f" else "data"
        return TOLERANCES[kind, None]

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, rule)

    controls: list[ControlResult] = [
        judge(name, compare(arrays), "our arrays") for name, arrays in faults.items()
    ]
    return StepResult(
        case.name,
        "data",
        None,
        compare(ours),
        controls,
        framework_free=True,
        note=f"{len(ours)} arrays; ours: NumPy and Pillow, reference: {against}",
    )
