"""Draws from given uniform numbers: by hand, and against timm with its draws replaced."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image

from sot_torch_ref.train.random_erasing import drawn_boxes, erase
from sot_torch_ref.train.training_image import TrainingRecipe, crop_box, transform_image
from sot_torch_ref.train.uniform_draws import UniformDraws


def test_draws_by_hand() -> None:
    draws = UniformDraws([0.25, 0.5, 0.999, 0.3, 0.3, 0.9, 0.1, 0.5, 0.5, 0.84134474606854])
    assert draws.between(2.0, 4.0) == 2.5
    assert [draws.whole(4), draws.whole(4)] == [2, 3]
    assert [draws.chance(0.5), draws.chance(0.3)] == [True, False]
    assert draws.order(2) == [1, 0]
    assert draws.beta(0.8) == pytest.approx(0.5)
    np.testing.assert_allclose(draws.normal((2, 1)).numpy(), [[0.0], [1.0]], atol=1e-9)
    with pytest.raises(ValueError, match="11 uniform numbers asked for, 10 given"):
        draws.unit()


def serve(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Let Python's generator, which timm draws crops and rectangles from, take these numbers."""
    numbers = iter(values)
    monkeypatch.setattr(random, "random", lambda: next(numbers))
    monkeypatch.setattr(random, "uniform", lambda low, high: low + (high - low) * next(numbers))
    monkeypatch.setattr(
        random, "randint", lambda low, high: low + int((high - low + 1) * next(numbers))
    )


@pytest.mark.parametrize("size", [(57, 40), (48, 73), (5, 9), (90, 31), (31, 90)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0)])
def test_a_crop_is_timm(monkeypatch: pytest.MonkeyPatch, size, scale) -> None:
    from timm.data.transforms import RandomResizedCropAndInterpolation

    values = np.random.default_rng(size).random(40).tolist()
    height, width = size
    serve(monkeypatch, values)
    ratio = (3.0 / 4.0, 4.0 / 3.0)
    image = Image.new("RGB", (width, height))
    expected = RandomResizedCropAndInterpolation.get_params(image, scale, ratio)
    assert crop_box(UniformDraws(values), height, width, scale, ratio) == tuple(expected)


@pytest.mark.parametrize("mode", ["pixel", "rand", "const"])
def test_rectangles_are_timm(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    from timm.data import random_erasing

    values = np.random.default_rng(3).random(4000)
    image = torch.zeros(3, 12, 17)
    boxes = drawn_boxes(UniformDraws(values), image.shape, prob=1.0, mode=mode, count=3)
    assert len(boxes) == 1 + int(3 * values[1])
    draws = UniformDraws(values)

    def pixels(per_pixel, rand_color, size, dtype, device) -> torch.Tensor:
        shape = {"pixel": size, "rand": (size[0], 1, 1), "const": None}[mode]
        return torch.zeros(size[0], 1, 1) if shape is None else draws.normal(shape).float()

    numbers = draws.unit
    monkeypatch.setattr(random, "random", numbers)
    monkeypatch.setattr(random, "uniform", draws.between)
    monkeypatch.setattr(random, "randint", lambda low, high: low + draws.whole(high - low + 1))
    monkeypatch.setattr(random_erasing, "_get_pixels", pixels)
    layer = random_erasing.RandomErasing(1.0, mode=mode, max_count=3, device="cpu")
    expected = layer(image.clone())
    for box, noise in boxes:
        image = erase(image, box, noise.float())
    torch.testing.assert_close(image, expected, rtol=0, atol=0)


def test_an_image_without_draws_is_timm() -> None:
    """``no_aug``: bilinear, short side, centre; nothing is taken off the stream."""
    from timm.data import create_transform

    rng = np.random.default_rng(2)
    image = Image.fromarray(rng.integers(0, 256, (41, 30, 3), dtype=np.uint8))
    ours = transform_image(image, UniformDraws([]), TrainingRecipe(img_size=16, no_aug=True))
    timm = create_transform(16, is_training=True, no_aug=True, interpolation="random")
    for layer in timm.transforms[:2]:
        image = layer(image)
    assert np.array_equal(ours.pixels, np.array(image))
    assert ours.crop is None
