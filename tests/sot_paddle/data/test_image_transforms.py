"""The evaluation transform, pixel for pixel against timm's, and the two normalisations."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_decoding import decode_rgb
from sot_paddle.data.image_transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    EvalTransform,
    center_crop,
    normalize_batch,
    normalize_image,
)

SIZES = [(57, 41), (41, 57), (64, 64), (33, 90), (200, 31), (20, 17), (36, 37), (7, 65), (1, 9)]


def picture(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Smooth colours with noise, so that a shift by one pixel is seen."""
    rng = np.random.default_rng([seed, *size])
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC)).astype(int)
    return Image.fromarray(
        np.clip(smooth + rng.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8)
    )


def reference(img_size: int, crop_pct: float, interpolation: str):
    from timm.data import create_transform

    return create_transform(
        img_size, is_training=False, crop_pct=crop_pct, interpolation=interpolation
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("img_size", "crop_pct", "interpolation"),
    [(32, 0.875, "bicubic"), (32, 1.0, "bicubic"), (29, 0.9, "bilinear"), (48, 0.95, "bicubic")],
)
def test_equal_to_timm(size, img_size, crop_pct, interpolation) -> None:
    image = picture(size)
    ours = EvalTransform(img_size, crop_pct, interpolation)(image)
    theirs = reference(img_size, crop_pct, interpolation)(image).numpy()
    assert ours.dtype == np.float32
    assert ours.shape == (3, img_size, img_size)
    assert np.array_equal(ours, theirs)


def test_equal_to_timm_on_photographs(shared_data) -> None:
    folder = shared_data / "images" / "flowers5" / "val"
    files = sorted(folder.glob("*/*.jpg"))[::7]
    if not files:
        pytest.skip("../shared/data/images/flowers5 absent")
    theirs = reference(224, 0.875, "bicubic")
    for file in files:
        image = decode_rgb(file)
        assert np.array_equal(EvalTransform()(image), theirs(image).numpy())


def test_the_check_sees_another_filter_and_a_shift() -> None:
    image = picture((57, 41))
    theirs = reference(32, 0.875, "bicubic")(image).numpy()
    assert not np.array_equal(EvalTransform(32, interpolation="bilinear")(image), theirs)
    assert not np.array_equal(EvalTransform(32, crop_pct=0.9)(image), theirs)


@pytest.mark.parametrize("size", [(9, 9), (9, 4), (4, 9), (5, 5), (4, 4), (6, 5), (1, 1)])
@pytest.mark.parametrize("side", [4, 5, 8])
def test_center_crop_is_torchvision_s_with_padding(size, side) -> None:
    from torchvision.transforms.functional import center_crop as reference_crop

    image = picture(size)
    assert np.array_equal(center_crop(image, side), reference_crop(image, side))


def test_normalization_of_every_byte_is_torchvision_s() -> None:
    import torch
    from torchvision.transforms import functional

    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    tensor = functional.to_tensor(pixels)
    theirs = functional.normalize(tensor, IMAGENET_MEAN, IMAGENET_STD).numpy()
    assert np.array_equal(normalize_image(pixels), theirs)
    # and the train loader's arithmetic is timm's PrefetchLoader's
    mean, std = (torch.tensor([x * 255 for x in v]) for v in (IMAGENET_MEAN, IMAGENET_STD))
    loader = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    loader = loader.sub_(mean.view(1, 3, 1, 1)).div_(std.view(1, 3, 1, 1)).numpy()
    ours = normalize_batch(pixels[None])
    assert np.array_equal(ours, loader)
    assert 0 < np.abs(ours - theirs).max() < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"img_size": 0},
        {"img_size": 32.0},
        {"img_size": True},
        {"crop_pct": 0.0},
        {"crop_pct": 1.5},
        {"interpolation": "random"},
        {"mean": (0.5, 0.5)},
        {"std": (0.5, 0.5, 0.0)},
    ],
)
def test_refusals(options: dict) -> None:
    with pytest.raises(DataError, match=f"{next(iter(options))}: expected"):
        EvalTransform(**options)
