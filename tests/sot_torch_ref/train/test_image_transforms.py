"""timm's transforms as the reference: the dtype, and RandAugment out of single operations."""

import random

import numpy as np
import pytest
from PIL import Image

from sot_torch_ref.train import image_transforms as transforms


def picture(height: int = 40, width: int = 60) -> Image.Image:
    pixels = np.random.default_rng(4).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.usefixtures("float64")
def test_eval_transform_in_float64() -> None:
    assert transforms.eval_transform(28)(picture()).dtype == np.float64


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
