"""The training transform: crops against torchvision's and timm's rules, flip, jitter, options."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_augment import (
    AugmentConfig,
    Crop,
    Jitter,
    TrainDraws,
    TrainTransform,
    draw_crop,
    draw_jitter,
)
from sot_paddle.data.image_randaugment import RESAMPLINGS
from sot_paddle.data.image_random import generator

PLAIN = {"auto_augment": None, "color_jitter": None}


@pytest.fixture(scope="module")
def image() -> Image.Image:
    rng = np.random.default_rng(5)
    small = Image.fromarray(rng.integers(10, 240, (6, 5, 3), dtype=np.uint8))
    return small.resize((47, 39), Image.Resampling.BICUBIC)


class Recorded:
    """Stands for Python's random module in timm: plays back a generator's own draws."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def uniform(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)

    def randint(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))


@pytest.mark.parametrize("size", [(47, 39), (100, 9), (9, 100), (8, 8), (3, 500)])
def test_crops_are_timm_s_for_the_same_draws(size, monkeypatch) -> None:
    from timm.data import transforms

    width, height = size
    image = Image.new("RGB", size)
    for seed in range(60):
        ours = draw_crop(np.random.default_rng(seed), height, width)
        monkeypatch.setattr(transforms, "random", Recorded(np.random.default_rng(seed)))
        theirs = transforms.RandomResizedCropAndInterpolation.get_params(
            image, (0.08, 1.0), (3 / 4, 4 / 3)
        )
        assert (ours.top, ours.left, ours.height, ours.width) == theirs


def test_statistics_of_crops() -> None:
    rng = np.random.default_rng(1)
    crops = [draw_crop(rng, 400, 400) for _ in range(3000)]
    areas = np.array([crop.height * crop.width for crop in crops]) / 160000
    shapes = np.log([crop.width / crop.height for crop in crops])
    assert 0.075 < areas.min() < 0.1
    assert 0.97 < areas.max() <= 1
    assert abs(shapes.mean()) < 0.02
    assert np.abs(shapes).max() <= math.log(4 / 3) + 0.02
    # large crops of an extreme shape do not fit and are drawn again: below the mean of U(.08, 1)
    assert 0.47 < areas.mean() < 0.535
    tops = np.array([crop.top / max(1, 400 - crop.height) for crop in crops])
    assert abs(tops.mean() - 0.5) < 0.03


def test_fallback_is_the_largest_central_crop_in_the_range() -> None:
    rng = np.random.default_rng(0)
    assert draw_crop(rng, 10, 1000, scale=(1, 1)) == Crop(0, 493, 10, 13)
    assert draw_crop(rng, 1000, 9, scale=(1, 1)) == Crop(494, 0, 12, 9)
    assert draw_crop(rng, 10, 10, scale=(1, 1), ratio=(1.2, 1.3)) == Crop(1, 0, 8, 10)


def test_apply_is_torchvision_s_resized_crop_and_flip(image) -> None:
    from torchvision.transforms import InterpolationMode, functional

    crop = Crop(3, 5, 21, 30)
    for resampling, mode in zip(
        RESAMPLINGS, (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC), strict=True
    ):
        for flip in (False, True):
            draws = TrainDraws(crop, resampling, flip)
            ours = TrainTransform(AugmentConfig(img_size=16, **PLAIN)).apply(image, draws)
            theirs = functional.resized_crop(image, 3, 5, 21, 30, [16, 16], mode)
            theirs = functional.hflip(theirs) if flip else theirs
            assert np.array_equal(ours, theirs)


def test_jitter_is_torchvision_s_for_the_same_factors(image) -> None:
    from torchvision.transforms import functional

    adjust = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
    )
    config = AugmentConfig(img_size=16, auto_augment=None)
    transform, crop = TrainTransform(config), Crop(0, 0, 39, 47)
    for seed in range(10):
        jitter = draw_jitter(np.random.default_rng(seed), config.jitter_strengths)
        theirs = image.resize((16, 16), RESAMPLINGS[0])
        for kind, factor in jitter.steps:
            theirs = adjust[kind](theirs, factor)
        ours = transform.apply(image, TrainDraws(crop, RESAMPLINGS[0], jitter=jitter))
        assert np.array_equal(ours, theirs)


def test_statistics_of_jitter() -> None:
    rng = np.random.default_rng(2)
    drawn = [draw_jitter(rng, (0.4, 0.2, 0.0)) for _ in range(2000)]
    first = np.bincount([jitter.steps[0][0] for jitter in drawn], minlength=3)
    assert (np.abs(first - 2000 / 3) < 110).all()
    factors = np.array([[dict(jitter.steps)[kind] for kind in range(3)] for jitter in drawn])
    assert np.allclose(factors.min(axis=0), [0.6, 0.8, 1.0], atol=0.01)
    assert np.allclose(factors.max(axis=0), [1.4, 1.2, 1.0], atol=0.01)
    assert draw_jitter(rng, ()) == Jitter(())


def test_jitter_is_inert_while_randaugment_is_on(image) -> None:
    draws = TrainTransform(AugmentConfig(color_jitter=0.4)).draw(np.random.default_rng(0), (9, 9))
    assert draws.jitter == Jitter(())
    off = TrainTransform(AugmentConfig(auto_augment=None)).draw(np.random.default_rng(0), (9, 9))
    assert len(off.jitter.steps) == 3
    assert off.operations == ()


def test_flip_and_filter_probabilities() -> None:
    transform, count = TrainTransform(AugmentConfig(hflip=0.3, **PLAIN)), 2000
    drawn = [transform.draw(generator("augment", 0, 0, k), (50, 40)) for k in range(count)]
    assert abs(sum(d.flip for d in drawn) / count - 0.3) < 0.05
    assert abs(sum(d.resampling == RESAMPLINGS[0] for d in drawn) / count - 0.5) < 0.06
    fixed = TrainTransform(AugmentConfig(interpolation="bicubic", hflip=1.0, **PLAIN))
    drawn = [fixed.draw(generator("augment", 0, 0, k), (50, 40)) for k in range(20)]
    assert {(d.resampling, d.flip) for d in drawn} == {(RESAMPLINGS[1], True)}


def test_no_aug_is_timm_s(image) -> None:
    from timm.data import create_transform

    config = AugmentConfig(img_size=16, no_aug=True)
    ours = TrainTransform(config)(image, np.random.default_rng(0))
    theirs = create_transform(16, is_training=True, no_aug=True, use_prefetcher=True)(image)
    assert np.array_equal(ours, theirs.numpy().transpose(1, 2, 0))


def test_shape_and_fill() -> None:
    transform = TrainTransform(AugmentConfig(img_size=20))
    assert transform.fill == (124, 116, 104)
    for k, size in enumerate([(47, 39), (1, 1), (1, 30), (300, 2)]):
        pixels = transform(Image.new("RGB", size, (9, 8, 7)), generator("augment", 1, 0, k))
        assert pixels.shape == (20, 20, 3)
        assert pixels.dtype == np.uint8


def test_generators_depend_on_all_of_their_position() -> None:
    positions = [
        (stream, seed, epoch, index)
        for stream in ("augment", "erase", "mix")
        for seed in (0, 1)
        for epoch in (0, 1)
        for index in (0, 1, 2**32 - 1)
    ]
    values = {position: generator(*position).random() for position in positions}
    assert len(set(values.values())) == len(positions)
    assert values[positions[5]] == generator(*positions[5]).random()
    assert generator("mix", 3, np.int64(2), 1).random() == generator("mix", 3, 2, 1).random()


@pytest.mark.parametrize("wrong", [(-1, 0, 0), (0, 2**32, 0), (0, 0, 1.5)])
def test_generators_refuse(wrong: tuple) -> None:
    with pytest.raises(DataError, match="whole number from 0"):
        generator("mix", *wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"img_size": -1}, "img_size: expected"),
        ({"scale": (0.5, 1.2)}, "scale: expected"),
        ({"scale": (0.0, 1.0)}, "scale: expected"),
        ({"ratio": (2.0, 1.0)}, "ratio: expected"),
        ({"interpolation": "cubic"}, "interpolation: expected"),
        ({"hflip": 1.1}, "hflip: expected"),
        ({"auto_augment": "v0"}, "auto-augment: expected"),
        ({"color_jitter": 2.0}, "color_jitter: expected"),
        ({"color_jitter": (0.1, 0.1)}, "color_jitter: expected"),
        ({"std": (1.0, 1.0, -1.0)}, "std: expected"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AugmentConfig(**options)
