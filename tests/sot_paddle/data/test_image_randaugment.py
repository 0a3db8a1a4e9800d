"""RandAugment: each operation pixel by pixel against timm's, the levels, the parser, the draws."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageOps

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_operations import (
    INCREASING,
    OPERATIONS,
    PLAIN,
    SPATIAL,
    apply_operation,
    level_to_argument,
)
from sot_paddle.data.image_randaugment import (
    RESAMPLINGS,
    RandAugmentConfig,
    apply_operations,
    draw_operations,
    parse_randaugment,
)

RECIPE = "rand-m9-mstd0.5-inc1"
FILL = (124, 116, 104)
MAGNITUDES = (0.0, 0.3, 2.5, 4.99, 5.0, 7.77, 9.0, 9.6, 10.0)


@pytest.fixture(scope="module")
def image() -> Image.Image:
    rng = np.random.default_rng(5)
    small = Image.fromarray(rng.integers(10, 240, (6, 5, 3), dtype=np.uint8))
    return small.resize((31, 23), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def timm_module():
    from timm.data import auto_augment

    return auto_augment


def reference_argument(module, monkeypatch, name: str, magnitude: float, negate: bool):
    monkeypatch.setattr(module.random, "random", lambda: 1.0 if negate else 0.0)
    function = module.LEVEL_TO_ARG[name]
    return () if function is None else function(magnitude, {"img_mean": FILL})


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@pytest.mark.parametrize("negate", [False, True])
def test_equal_to_timm(name, negate, image, timm_module, monkeypatch) -> None:
    changed = 0
    for magnitude in MAGNITUDES:
        expected = reference_argument(timm_module, monkeypatch, name, magnitude, negate)
        argument = level_to_argument(name, magnitude, negate)
        # 1 - .9 is .1 but for the last bit, which timm 1.0.31 rounds away
        assert (() if argument is None else (argument,)) == pytest.approx(expected, rel=1e-14)
        if "Posterize" in name and argument == 0:
            continue  # Pillow 13 refuses it in timm: see test_no_bit_at_all_gives_black
        for resampling in RESAMPLINGS:
            ours = apply_operation(name, image, argument, resampling, FILL)
            theirs = timm_module.NAME_TO_OP[name](
                image, *expected, fillcolor=FILL, resample=resampling
            )
            assert np.array_equal(ours, theirs), (magnitude, resampling)
            changed += not np.array_equal(ours, image)
    assert changed >= 2, "an operation that does nothing would prove nothing"


def test_no_bit_at_all_gives_black(image) -> None:
    assert level_to_argument("PosterizeIncreasing", 10) == 0
    assert not np.asarray(apply_operation("PosterizeIncreasing", image, 0)).any()
    with pytest.raises(ValueError, match="bits"):  # when this fails, compare with timm above
        ImageOps.posterize(image, 0)


def test_the_sets_are_timm_s(timm_module) -> None:
    assert list(INCREASING) == timm_module._RAND_INCREASING_TRANSFORMS
    assert list(PLAIN) == timm_module._RAND_TRANSFORMS


def test_levels_refuse() -> None:
    with pytest.raises(DataError, match="expected one of AutoContrast"):
        level_to_argument("Cutout", 3)
    with pytest.raises(DataError, match="magnitude from 0 to 10"):
        level_to_argument("Rotate", 10.1)


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
        ("rand-m9.5", "whole numbers"),
        ("rand-inc2", "0 or 1 for inc"),
        ("rand-p1.5", "probability from 0 to 1"),
    ],
)
def test_parser_refuses(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_randaugment(text)


def test_statistics_of_draws() -> None:
    """Counts and moments over 4000 images, each within five standard errors."""
    rng, count = np.random.default_rng(7), 4000
    drawn = [draw_operations(rng, parse_randaugment(RECIPE)) for _ in range(count)]
    total = sum(map(len, drawn))
    assert abs(total - count) < 5 * math.sqrt(count / 2)
    assert Counter(map(len, drawn)).keys() == {0, 1, 2}
    operations = [operation for some in drawn for operation in some]
    names = Counter(operation.name for operation in operations)
    assert set(names) == set(INCREASING)
    assert all(abs(n - total / 15) < 5 * math.sqrt(total / 15) for n in names.values())
    bicubic = sum(operation.resampling == RESAMPLINGS[1] for operation in operations)
    assert abs(bicubic - total / 2) < 5 * math.sqrt(total / 4)
    rotations = np.array([o.argument for o in operations if o.name == "Rotate"])
    assert abs((rotations < 0).mean() - 0.5) < 5 * 0.5 / math.sqrt(len(rotations))
    magnitudes = np.abs(rotations) / 3
    # E min(N(9, .5), 10) is 9 - .5 * .0085, its deviation a little below .5
    assert abs(magnitudes.mean() - 8.996) < 5 * 0.5 / math.sqrt(len(magnitudes))
    assert 0.4 < magnitudes.std() < 0.55
    assert magnitudes.max() <= 10


def test_number_of_draws_does_not_depend_on_what_is_drawn() -> None:
    config = parse_randaugment(RECIPE)
    never, always = (RandAugmentConfig(9, 2, 0.5, True, probability) for probability in (0.0, 1.0))
    after = []
    for variant in (config, never, always):
        rng = np.random.default_rng(3)
        draw_operations(rng, variant)
        after.append(rng.random())
    assert len(set(after)) == 1


def test_whole_policy_with_the_draws_of_timm(image, timm_module, monkeypatch) -> None:
    """timm carries out our draws: same operations, arguments and filters give the same pixels."""
    rng, config = np.random.default_rng(11), parse_randaugment("rand-m9-mstd0.5-inc1-p1-n3")
    for _ in range(20):
        drawn = draw_operations(rng, config)
        theirs = image
        for operation in drawn:
            op = timm_module.AugmentOp(operation.name, 1.0, 9, {"img_mean": FILL})
            op.level_fn = lambda *_, a=operation.argument: () if a is None else (a,)
            op.kwargs["resample"] = operation.resampling
            theirs = op(theirs)
        assert np.array_equal(apply_operations(image, drawn, FILL), theirs)
    assert len(SPATIAL) == 5
