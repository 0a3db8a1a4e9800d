"""Transforms, RandAugment, mixing, the digits and ImageNet-A's table; pixels: tests/parity."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from sot_paddle.data.image_dataset import generator, load_digits
from sot_paddle.data.image_mixing import (
    ErasingConfig,
    Mix,
    MixConfig,
    draw_erasure,
    draw_mix,
    erase,
)
from sot_paddle.data.image_randaugment import (
    RESAMPLINGS,
    RandAugmentConfig,
    apply_operation,
    draw_operations,
    level_to_argument,
    parse_randaugment,
)
from sot_paddle.data.image_transforms import AugmentConfig, EvalTransform, TrainTransform
from sot_paddle.data.imagenet_a import (
    INDICES,
    SYNSETS,
    require_synsets,
)


def test_shape_and_fill() -> None:
    transform = TrainTransform(AugmentConfig(img_size=20))
    assert transform.fill == (124, 116, 104)
    for k, size in enumerate([(47, 39), (1, 1), (1, 30), (300, 2)]):
        pixels = transform(Image.new("RGB", size, (9, 8, 7)), generator("augment", 1, 0, k))
        assert pixels.shape == (20, 20, 3)
        assert pixels.dtype == np.uint8


@pytest.mark.parametrize("more", [{"auto_augment": None}, {"no_aug": True}])
def test_without_randaugment_any_filter_resizes(more: dict) -> None:
    transform = TrainTransform(AugmentConfig(img_size=20, interpolation="lanczos", **more))
    image = Image.fromarray(np.zeros((30, 25, 3), dtype=np.uint8))
    assert transform(image, np.random.default_rng(0)).shape == (20, 20, 3)


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        (EvalTransform, {"std": (0.5, 0.5, 0.0)}, "std: expected"),
        (AugmentConfig, {"scale": (0.5, 1.2)}, "scale: expected"),
        (AugmentConfig, {"ratio": (2.0, 1.0)}, "ratio: expected"),
    ],
)
def test_transforms_that_cannot_be_are_refused(record: type, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        record(**options)


RECIPE = "rand-m9-mstd0.5-inc1"
FILL = (124, 116, 104)


@pytest.fixture(scope="module")
def image() -> Image.Image:
    rng = np.random.default_rng(5)
    small = Image.fromarray(rng.integers(10, 240, (6, 5, 3), dtype=np.uint8))
    return small.resize((31, 23), Image.Resampling.BICUBIC)


def test_no_bit_at_all_gives_black(image) -> None:
    assert level_to_argument("PosterizeIncreasing", 10) == 0
    assert not np.asarray(apply_operation("PosterizeIncreasing", image, 0)).any()
    with pytest.raises(ValueError, match="bits"):  # when this fails, compare magnitude 10 too
        ImageOps.posterize(image, 0)


def test_places_left_behind_have_the_fill_colour(image) -> None:
    moved = apply_operation("TranslateXRel", image, 0.4, RESAMPLINGS[0], FILL)
    assert (np.asarray(moved)[:, -10:] == FILL).all()


def test_parser() -> None:
    assert parse_randaugment(RECIPE) == RandAugmentConfig(9.0, 2, 0.5, 0.5)
    assert parse_randaugment("rand-inc1") == RandAugmentConfig(10.0, 2, 0.0, 0.5)
    assert parse_randaugment("rand-n3-p1-m4-inc1") == RandAugmentConfig(4.0, 3, 0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("original-mstd0.5", "expected rand-"),
        ("augmix-m3", "AugMix policies are not offered"),
        ("rand-mmax20", "unknown section 'mmax20'"),
        ("rand-m9-mstd0.5", "expected inc1"),
        ("rand-m9-inc0", "unknown section 'inc0'"),
    ],
)
def test_parser_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_randaugment(text)


def test_number_of_draws_does_not_depend_on_what_is_drawn() -> None:
    after = set()
    for probability in (0.0, 0.5, 1.0):
        rng = np.random.default_rng(3)
        draw_operations(rng, RandAugmentConfig(9, 2, 0.5, probability))
        after.add(rng.random())
    assert len(after) == 1


def test_magnitudes_above_10_are_10() -> None:
    drawn = [
        [
            draw_operations(np.random.default_rng(k), RandAugmentConfig(m, prob=1.0))
            for k in range(9)
        ]
        for m in (10, 30)
    ]
    assert drawn[0] == drawn[1]


def test_options_of_draws() -> None:
    def kinds(**options) -> set[str]:
        config = MixConfig(7, **options)
        drawn = [draw_mix(np.random.default_rng(k), config, 32, 32, epoch=5) for k in range(60)]
        return {
            "none" if mix == Mix() else "mixup" if mix.box is None else "cutmix" for mix in drawn
        }

    assert kinds() == {"mixup", "cutmix"}
    assert kinds(cutmix=0.0) == {"mixup"}
    assert kinds(mixup=0.0) == {"cutmix"}
    assert kinds(prob=0.0) == {"none"}
    assert kinds(prob=0.5) == {"none", "mixup", "cutmix"}
    assert kinds(switch_prob=1.0) == {"cutmix"}
    assert kinds(off_epoch=5) == {"none"}
    assert kinds(off_epoch=6) == {"mixup", "cutmix"}


def test_nothing_is_erased_for_probability_zero_and_of_images_too_small() -> None:
    rng, image = np.random.default_rng(0), np.zeros((3, 1, 1), np.float32)
    for _ in range(50):
        assert draw_erasure(rng, ErasingConfig(prob=0.0), (3, 37, 29)) is None
        erasure = draw_erasure(rng, ErasingConfig(prob=1.0), image.shape)
        if erasure is not None:  # of no pixel
            erase(image, erasure)
    assert not image.any()


def test_split_is_stratified_and_whole() -> None:
    train, val = load_digits(8)
    assert (len(train), len(val)) == (1433, 364)
    assert np.bincount(val.labels).tolist() == [36, 37, 36, 37, 37, 37, 37, 36, 35, 36]
    names = [source.name(index) for source in (train, val) for index in range(len(source))]
    assert sorted(names, key=lambda name: int(name.split()[1])) == [
        f"digit {place}" for place in range(1797)
    ]


def lines(name: str) -> list[str]:
    root = Path(importlib.util.find_spec("timm").submodule_search_locations[0])
    return (root / "data" / "_info" / name).read_text().split()


def test_the_table_is_the_public_one() -> None:
    assert list(SYNSETS) == lines("imagenet_a_synsets.txt")
    assert [str(index) for index in INDICES] == lines("imagenet_a_indices.txt")


def test_folders_are_checked_by_name() -> None:
    require_synsets(SYNSETS)
    with pytest.raises(ValueError, match="got 199 folders; missing n01498041, foreign none"):
        require_synsets(SYNSETS[1:])
    with pytest.raises(ValueError, match="missing none, foreign none"):
        require_synsets(SYNSETS[::-1])
