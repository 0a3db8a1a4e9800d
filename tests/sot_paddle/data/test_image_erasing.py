"""Random erasing against timm's for exchanged draws, and the statistics of the draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_erasing import MODES, ErasingConfig, apply_erasures, draw_erasures

SHAPE = (3, 37, 29)


class Played:
    """Python's random module in timm, playing back our generator in our order."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def random(self) -> float:
        return self.rng.random()

    def uniform(self, low: float, high: float) -> float:
        return self.rng.uniform(low, high)

    def randint(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("count", "shape"), [(1, SHAPE), (3, SHAPE), (1, (3, 4, 40))])
def test_equal_to_timm_for_the_same_draws(mode, count, shape, monkeypatch) -> None:
    """In the flat image many rectangles are as high as the image and are drawn again."""
    import torch
    from timm.data import random_erasing

    erased = 0
    for seed in range(40):
        config = ErasingConfig(prob=0.7, mode=mode, count=count)
        images = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        ours = images.copy()
        apply_erasures(ours, draw_erasures(np.random.default_rng(seed), config, shape))

        # with a count of 1 timm draws none, and ours from a range of one number uses none up
        played = Played(np.random.default_rng(seed))

        def pixels(per_pixel, rand_color, size, played=played, **_):
            patch = size if per_pixel else (size[0], 1, 1)
            if not per_pixel and not rand_color:
                return torch.zeros(patch)
            return torch.from_numpy(played.rng.standard_normal(patch, dtype=np.float32))

        monkeypatch.setattr(random_erasing, "random", played)
        monkeypatch.setattr(random_erasing, "_get_pixels", pixels)
        theirs = torch.from_numpy(images[None].copy())
        random_erasing.RandomErasing(0.7, mode=mode, max_count=count, device="cpu")(theirs)
        assert np.array_equal(ours, theirs.numpy()[0])
        erased += not np.array_equal(ours, images)
    assert 15 < erased < 40


def test_statistics() -> None:
    rng, config, count = np.random.default_rng(3), ErasingConfig(), 6000
    drawn = [draw_erasures(rng, config, (3, 200, 200)) for _ in range(count)]
    boxes = [erasures[0] for erasures in drawn if erasures]
    assert {len(erasures) for erasures in drawn} == {0, 1}
    assert abs(len(boxes) / count - 0.25) < 0.03
    areas = np.array([box.height * box.width for box in boxes]) / 40000
    assert 0.018 < areas.min() < 0.03
    assert 0.31 < areas.max() < 0.34
    assert abs(areas.mean() - (0.02 + 1 / 3) / 2) < 0.015
    aspects = np.log([box.height / box.width for box in boxes])
    assert abs(aspects.mean()) < 0.1
    assert math.log(3) < np.abs(aspects).max() < math.log(3.6)
    noise = np.concatenate([box.values.ravel() for box in boxes[:20]])
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert boxes[0].values.dtype == np.float32
    assert boxes[0].values.shape == (3, boxes[0].height, boxes[0].width)


def test_only_the_rectangle_changes() -> None:
    erasures = draw_erasures(np.random.default_rng(1), ErasingConfig(prob=1.0), SHAPE)
    image = np.full(SHAPE, 7, np.float32)
    apply_erasures(image, erasures)
    (box,) = erasures
    assert (image != 7).sum() == 3 * box.height * box.width
    inside = image[:, box.top : box.top + box.height, box.left : box.left + box.width]
    assert np.array_equal(inside, box.values)


def test_none_for_probability_zero_and_for_images_too_small() -> None:
    rng = np.random.default_rng(0)
    assert not any(draw_erasures(rng, ErasingConfig(prob=0.0), SHAPE) for _ in range(50))
    image = np.zeros((3, 1, 1), np.float32)
    for _ in range(20):
        apply_erasures(image, draw_erasures(rng, ErasingConfig(prob=1.0), image.shape))
    assert not image.any()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "black"},
        {"prob": 2.0},
        {"count": 0},
        {"min_area": 0.5},
        {"max_area": 1.5},
        {"min_aspect": 0.0},
    ],
)
def test_refusals(options: dict) -> None:
    with pytest.raises(DataError, match="erasing"):
        ErasingConfig(**options)
