"""Step ``data`` for images: mixing and erasing with exchanged draws, pixels against timm's.

Ours is NumPy and Pillow; the reference is PyTorch for mixing and erasing, timm for pixels. What
is random is drawn once, by ours, and handed to both sides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from PIL import Image

from align import torch_side
from align.bounds import TOLERANCES
from align.case_kinds import MixCase, PixelCase
from align.comparator import compare_mappings
from align.context import Context
from align.controls import judge
from align.results import Comparison, ControlResult, StepResult, Tolerance
from align.sides import Arrays
from sot_paddle.data import image_erasing, image_mixing, image_operations, image_transforms

CLASSES, SMOOTHING = 7, 0.1
_BATCH, _SIDE = 6, 21
_SIZES = ((40, 57), (73, 48), (50, 50), (31, 90))  # width, height: both orientations, odd margins
_LEVELS = (0.0, 3.7, 9.0, 9.9)  # at 10 timm itself fails: posterize to 0 bits

Compare = Callable[[Arrays], list[Comparison]]


def draw_pictures(seed: int = 5) -> list[Image.Image]:
    """Smooth colour gradients with noise: every operation changes them."""
    rng = np.random.default_rng(seed)
    pictures = []
    for width, height in _SIZES:
        rows, columns = np.mgrid[0:height, 0:width]
        waves = [
            np.sin(rows * rng.uniform(0.05, 0.4) + columns * rng.uniform(0.05, 0.4) + phase)
            for phase in rng.uniform(0, 6, 3)
        ]
        noisy = 128 + 90 * np.stack(waves, axis=-1) + rng.normal(0, 12, (height, width, 3))
        pictures.append(Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)))
    return pictures


def run_mixing(case: MixCase, dtype: None, context: Context) -> StepResult:
    """Compare mixed batches, targets and erased images under the same draws."""
    ours, reference, faults = _erasing(case) if case.kind == "erasing" else _mixing(case)
    return _result(case, ours, reference, faults, "PyTorch")


def _mixing(case: MixCase) -> tuple[Arrays, Arrays, dict[str, Arrays]]:
    rng = np.random.default_rng(17)
    only = {"mixup": {"cutmix": 0.0}, "cutmix": {"mixup": 0.0}}[case.kind]
    config = image_mixing.MixConfig(CLASSES, smoothing=SMOOTHING, **only)
    ours: Arrays = {}
    reference: Arrays = {}
    turned: Arrays = {}
    unsmoothed: Arrays = {}
    for draw in range(case.draws):
        images = rng.integers(0, 256, (_BATCH, _SIDE, _SIDE + 4, 3), dtype=np.uint8)
        labels = rng.integers(0, CLASSES, _BATCH)
        mix = image_mixing.draw_mix(rng, config, *images.shape[1:3])
        key = f"{draw}/"
        ours |= _mixed(key, images, labels, mix, SMOOTHING)
        reference |= torch_side.mixed(key, images, labels, mix, CLASSES, SMOOTHING)
        other = dataclasses.replace(mix, lam=1.0 - mix.lam)
        turned |= _mixed(key, images, labels, other, SMOOTHING)
        unsmoothed |= _mixed(key, images, labels, mix, 0.0)
    targets = [name for name in ours if name.endswith("targets")]
    pixels = [name for name in ours if name.endswith("images")]
    shifted = {**ours, pixels[0]: ours[pixels[0]] + np.uint8(1)}
    rolled = {name: np.roll(ours[name], 1, axis=0) for name in targets}
    return (
        ours,
        reference,
        {
            "lam and 1 - lam swapped": turned,
            "no label smoothing": unsmoothed,
            "one batch a level brighter": shifted,
            "targets of the next image": {**ours, **rolled},
        },
    )


def _mixed(
    key: str, images: np.ndarray, labels: np.ndarray, mix: image_mixing.Mix, smoothing: float
) -> Arrays:
    mixed = image_mixing.mix_images(images, mix)
    targets = image_mixing.mix_labels(labels, CLASSES, mix.lam, smoothing)
    return {f"{key}images": mixed.transpose(0, 3, 1, 2), f"{key}targets": targets}


def _erasing(case: MixCase) -> tuple[Arrays, Arrays, dict[str, Arrays]]:
    rng = np.random.default_rng(23)
    config = image_erasing.ErasingConfig(prob=1.0)
    ours: Arrays = {}
    reference: Arrays = {}
    moved: Arrays = {}
    for draw in range(case.draws):
        image = rng.normal(size=(3, _SIDE, _SIDE + 4)).astype(np.float32)
        (erasure,) = image_erasing.draw_erasures(rng, config, image.shape)
        name = f"{draw}/image"
        reference[name] = torch_side.erased(image, erasure)
        for arrays, top in ((ours, erasure.top), (moved, (erasure.top or 2) - 1)):
            arrays[name] = image.copy()
            there = dataclasses.replace(erasure, top=top)
            image_erasing.apply_erasures(arrays[name], (there,))
    first = next(iter(ours))
    return (
        ours,
        reference,
        {
            "rectangles one row higher": moved,
            "one image not erased": {**ours, first: ours[first] * np.float32(0.999)},
        },
    )


def run_pixels(case: PixelCase, dtype: None, context: Context) -> StepResult:
    """Compare pixels of the evaluation transform, or of every RandAugment operation."""
    ours, reference, faults = _operations() if case.operations else _evaluation(case)
    return _result(case, ours, reference, faults, "timm")


def _evaluation(case: PixelCase) -> tuple[Arrays, Arrays, dict[str, Arrays]]:
    def transformed(**changes) -> Arrays:
        transform = image_transforms.EvalTransform(
            **{"img_size": case.size, "crop_pct": case.crop_pct, **changes}
        )
        return {f"{index}": transform(p) for index, p in enumerate(draw_pictures())}

    reference = torch_side.evaluation_pixels(draw_pictures(), case.size, case.crop_pct)
    swapped = image_transforms.IMAGENET_MEAN[::-1]
    return (
        transformed(),
        reference,
        {
            "bilinear instead of bicubic": transformed(interpolation="bilinear"),
            "channels of the mean reversed": transformed(mean=swapped),
            "another crop": transformed(crop_pct=0.9 if case.crop_pct != 0.9 else 0.8),
        },
    )


def _operations() -> tuple[Arrays, Arrays, dict[str, Arrays]]:
    pictures = draw_pictures()
    ours: Arrays = {}
    reference: Arrays = {}
    weaker: Arrays = {}
    for name in image_operations.INCREASING:
        for index, (picture, level) in enumerate(zip(pictures, _LEVELS, strict=True)):
            negate = bool(index % 2)
            key = f"{name}/{level}"
            reference[key] = torch_side.operated(name, picture, level, negate)
            for arrays, magnitude in ((ours, level), (weaker, max(0.0, level - 2.5))):
                argument = image_operations.level_to_argument(name, magnitude, negate)
                arrays[key] = np.asarray(image_operations.apply_operation(name, picture, argument))
    order = {name: ours[name] for name in reversed(ours)}
    mirrored = {name: array[:, ::-1].copy() for name, array in order.items()}
    return ours, reference, {"magnitudes 2.5 lower": weaker, "mirrored images": mirrored}


def _result(
    case: MixCase | PixelCase,
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
