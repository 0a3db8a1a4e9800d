"""Pixels of evaluation and of RandAugment's operations, and boxes, against timm and PyTorch.

No framework of ours computes here: the product's side is NumPy and Pillow.
"""

from __future__ import annotations

import numpy as np
import pytest

import sot_torch_ref  # noqa: F401  isort: skip (torchvision beside a CPU torch)
from sot_paddle.data import image_mixing, image_randaugment, image_transforms
from sot_torch_ref.train import image_transforms as reference_transforms
from sot_torch_ref.train.mixup import drawn_mix
from sot_torch_ref.train.random_erasing import drawn_boxes
from sot_torch_ref.train.uniform_draws import UniformDraws
from tests.parity.pictures import SIZES, SMALL, draw_pictures
from tests.parity.sides import assert_same
from tests.parity.uniform_source import uniform_generator, uniform_numbers


@pytest.mark.parametrize(("size", "crop_pct"), [(32, 0.875), (224, 0.875), (48, 1.0)])
def test_pixels_of_evaluation(size: int, crop_pct: float) -> None:
    transform = image_transforms.EvalTransform(img_size=size, crop_pct=crop_pct)
    reference = reference_transforms.eval_transform(size, crop_pct)
    for picture in draw_pictures((*SIZES, *SMALL)):
        assert_same({"pixels": transform(picture)}, {"pixels": reference(picture)})


def test_centre_crop_that_is_larger_than_the_picture() -> None:
    """In one direction or in both, by odd and even numbers: there is a black border."""
    for picture in draw_pictures((*SMALL, (40, 22), (22, 40))):
        assert_same(
            {"pixels": np.asarray(image_transforms.center_crop(picture, 25))},
            {"pixels": np.array(reference_transforms.centre_crop(picture, 25))},
        )


def test_operations_of_randaugment() -> None:
    """The sign of an operation is negative for every second picture."""
    names = image_randaugment.NAMES
    levels = (0.0, 3.7, 9.0, 9.9)  # without 10, at which timm fails: posterize to 0 bits
    assert sorted(names) == sorted(reference_transforms.operation_names())
    for name in names:
        for index, (picture, level) in enumerate(zip(draw_pictures(), levels, strict=True)):
            argument = image_randaugment.level_to_argument(name, level, bool(index % 2))
            arguments = reference_transforms.level_arguments(name, level, negate=bool(index % 2))
            key = f"{name} {level}"
            made = image_randaugment.apply_operation(name, picture, argument)
            reference = reference_transforms.apply_operation(name, picture, arguments)
            assert_same({key: np.asarray(made)}, {key: np.array(reference)})


SEED, WIDE, STRIP = 42, (23, 59), (7, 300)
"""A wide image, and one so flat that a rectangle seldom fits: how often it is tried decides."""


def test_boxes_of_cutmix_in_a_wide_image() -> None:
    config = image_mixing.MixConfig(3, mixup=0.0)
    for index in range(12):
        mix = image_mixing.draw_mix(uniform_generator("mix", SEED, 0, index), config, *WIDE)
        draws = UniformDraws(uniform_numbers("mix", SEED, 0, index))
        lam, box = drawn_mix(draws, *WIDE, mixup=0.0)
        assert mix.box == tuple(box)
        assert mix.lam == pytest.approx(lam, rel=1e-10)


@pytest.mark.parametrize(("shape", "count"), [(WIDE, 12), (STRIP, 60), (STRIP[::-1], 60)])
def test_boxes_of_random_erasing(shape: tuple[int, int], count: int) -> None:
    config = image_mixing.ErasingConfig(prob=1.0)
    for index in range(count):
        erasure = image_mixing.draw_erasure(
            uniform_generator("erase", SEED, 0, index), config, (3, *shape)
        )
        draws = UniformDraws(uniform_numbers("erase", SEED, 0, index))
        reference = drawn_boxes(draws, (3, *shape), prob=1.0)
        boxes = [(one.top, one.left, one.height, one.width) for one in (erasure,) if one]
        assert boxes == [tuple(box) for box, _ in reference]
