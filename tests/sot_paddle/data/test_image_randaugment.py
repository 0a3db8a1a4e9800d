"""RandAugment: levels, parser, number of draws; pixels are compared by the alignment's cases."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_randaugment import (
    RESAMPLINGS,
    RandAugmentConfig,
    apply_operation,
    draw_operations,
    level_to_argument,
    parse_randaugment,
)

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
    assert parse_randaugment(RECIPE) == RandAugmentConfig(9.0, 2, 0.5, True, 0.5)
    assert parse_randaugment("rand") == RandAugmentConfig(10.0, 2, 0.0, False, 0.5)
    assert parse_randaugment("rand-n3-p1-m4-inc0") == RandAugmentConfig(4.0, 3, 0.0, False, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("original-mstd0.5", "expected rand-"),
        ("augmix-m3", "AugMix policies are not offered"),
        ("", "expected rand-"),
        ("rand-w0", "unknown section 'w0'"),
        ("rand-mmax20", "unknown section 'mmax20'"),
        ("rand-m9-m8", "repeated section 'm8'"),
        ("rand-m", "unknown section 'm'"),
        ("rand-m9.5", "unknown section 'm9.5'"),
        ("rand-inc2", "unknown section 'inc2'"),
        ("rand-p1.5", "probability from 0 to 1"),
    ],
)
def test_parser_refuses(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_randaugment(text)


def test_number_of_draws_does_not_depend_on_what_is_drawn() -> None:
    config = parse_randaugment(RECIPE)
    never, always = (RandAugmentConfig(9, 2, 0.5, True, probability) for probability in (0.0, 1.0))
    after = []
    for variant in (config, never, always):
        rng = np.random.default_rng(3)
        draw_operations(rng, variant)
        after.append(rng.random())
    assert len(set(after)) == 1
