"""timm's transforms as the reference: evaluation pixels and RandAugment's operations."""

import random

import numpy as np
import pytest
from PIL import Image, ImageOps

from sot_torch_ref.train import image_transforms as transforms


def picture(height: int = 40, width: int = 60) -> Image.Image:
    pixels = np.random.default_rng(4).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("shape", [(40, 60), (61, 33), (28, 28)])
def test_eval_transform_by_pillow(shape: tuple[int, int]) -> None:
    image = picture(*shape)
    result = transforms.eval_transform(28)(image)
    height, width = shape
    short = 32  # floor(28 / 0.875)
    size = (
        (int(short * width / height), short)
        if width >= height
        else (
            short,
            int(short * height / width),
        )
    )
    resized = np.asarray(image.resize(size, Image.Resampling.BICUBIC), dtype=np.float64)
    top, left = (int(round((side - 28) / 2.0)) for side in resized.shape[:2])
    cut = resized[top : top + 28, left : left + 28].transpose(2, 0, 1) / 255
    mean = np.array([0.485, 0.456, 0.406])[:, None, None]
    std = np.array([0.229, 0.224, 0.225])[:, None, None]
    assert (result.shape, result.dtype) == ((3, 28, 28), np.float32)
    np.testing.assert_allclose(result, (cut - mean) / std, atol=1e-6)


def test_eval_transform_options() -> None:
    image = picture(32, 32)
    plain = transforms.eval_transform(32, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))(image)
    np.testing.assert_allclose(plain * 255, np.asarray(image).transpose(2, 0, 1), atol=1e-4)


@pytest.mark.usefixtures("float64")
def test_eval_transform_in_float64() -> None:
    assert transforms.eval_transform(28)(picture()).dtype == np.float64


def test_operations_of_the_recipe() -> None:
    assert transforms.operation_names() == [
        "AutoContrast",
        "Equalize",
        "Invert",
        "Rotate",
        "PosterizeIncreasing",
        "SolarizeIncreasing",
        "SolarizeAdd",
        "ColorIncreasing",
        "ContrastIncreasing",
        "BrightnessIncreasing",
        "SharpnessIncreasing",
        "ShearX",
        "ShearY",
        "TranslateXRel",
        "TranslateYRel",
    ]


@pytest.mark.parametrize(
    ("name", "level", "negate", "expected"),
    [
        ("Invert", 9.0, False, ()),
        ("Rotate", 9.0, False, (27.0,)),
        ("Rotate", 9.0, True, (-27.0,)),
        ("PosterizeIncreasing", 9.0, False, (1,)),
        ("SolarizeIncreasing", 9.0, False, (26,)),
        ("SolarizeAdd", 9.0, False, (99,)),
        ("ColorIncreasing", 9.0, False, (1.81,)),
        ("SharpnessIncreasing", 9.0, True, (0.19,)),
        ("BrightnessIncreasing", 10.0, True, (0.1,)),
        ("ShearX", 9.0, True, (-0.27,)),
        ("TranslateXRel", 9.0, False, (0.405,)),
        ("TranslateYRel", 10.0, True, (-0.45,)),
    ],
)
def test_level_arguments(name: str, level: float, negate: bool, expected: tuple) -> None:
    assert transforms.level_arguments(name, level, negate=negate) == pytest.approx(expected)


def test_operations_change_pixels_as_their_names_say() -> None:
    image = picture()
    pixels = np.asarray(image)
    invert = transforms.apply_operation("Invert", image, ())
    assert np.array_equal(np.asarray(invert), 255 - pixels)
    solarize = transforms.apply_operation("SolarizeIncreasing", image, (26,))
    assert np.array_equal(np.asarray(solarize), np.where(pixels < 26, pixels, 255 - pixels))
    equalized = transforms.apply_operation("Equalize", image, ())
    assert np.array_equal(np.asarray(equalized), np.asarray(ImageOps.equalize(image)))
    moved = transforms.apply_operation(
        "TranslateXRel", image, (0.1,), resample=Image.Resampling.NEAREST, fill=(1, 2, 3)
    )
    assert np.array_equal(np.asarray(moved)[:, :54], pixels[:, 6:])
    assert (np.asarray(moved)[:, 54:] == (1, 2, 3)).all()
    for name in transforms.operation_names():
        arguments = transforms.level_arguments(name, 9.0)
        result = transforms.apply_operation(name, image, arguments)
        assert (result.size, result.mode) == (image.size, "RGB"), name
        if name != "AutoContrast":  # the noise already fills the range
            assert not np.array_equal(np.asarray(result), pixels), name


def test_rand_augment_is_made_of_these_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    from timm.data.auto_augment import rand_augment_transform  # once sot_torch_ref is there

    fill = tuple(round(255 * value) for value in transforms.IMAGENET_MEAN)
    limits = {"img_mean": fill, "translate_pct": 0.45}
    augment = rand_augment_transform(transforms.RAND_AUGMENT, limits)
    assert [op.name for op in augment.ops] == transforms.operation_names()
    assert augment.num_layers == 2
    assert {(op.prob, op.magnitude, op.magnitude_std) for op in augment.ops} == {(0.5, 9, 0.5)}
    chosen = [op for op in augment.ops if op.name in ("ShearY", "SolarizeAdd")]
    monkeypatch.setattr(np.random, "choice", lambda *args, **keys: chosen)
    monkeypatch.setattr(random, "random", lambda: 0.3)  # applied; the sign stays positive
    monkeypatch.setattr(random, "gauss", lambda mean, std: mean + std / 2)
    monkeypatch.setattr(random, "choice", lambda options: options[1])  # bicubic
    image = picture()
    expected = image
    for op in chosen:
        arguments = transforms.level_arguments(op.name, 9.25)
        expected = transforms.apply_operation(
            op.name, expected, arguments, resample=Image.Resampling.BICUBIC, fill=fill
        )
    assert np.array_equal(np.asarray(augment(image)), np.asarray(expected))
