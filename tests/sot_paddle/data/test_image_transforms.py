"""The transforms: evaluation on photographs against timm's, training on images of any size."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_dataset import generator
from sot_paddle.data.image_folder import decode_rgb
from sot_paddle.data.image_transforms import AugmentConfig, EvalTransform, TrainTransform


def test_equal_to_timm_on_photographs(shared_data) -> None:
    from timm.data import create_transform

    folder = shared_data / "images" / "flowers5" / "val"
    files = sorted(folder.glob("*/*.jpg"))[::7]
    if not files:
        pytest.skip("../shared/data/images/flowers5 absent")
    theirs = create_transform(224, is_training=False, crop_pct=0.875, interpolation="bicubic")
    for file in files:
        image = decode_rgb(file)
        assert np.array_equal(EvalTransform()(image), theirs(image).numpy())


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
        (EvalTransform, {"interpolation": "random"}, "interpolation: expected"),
        (EvalTransform, {"mean": (0.5, 0.5)}, "mean: expected"),
        (EvalTransform, {"std": (0.5, 0.5, 0.0)}, "std: expected"),
        (AugmentConfig, {"scale": (0.5, 1.2)}, "scale: expected"),
        (AugmentConfig, {"scale": (0.0, 1.0)}, "scale: expected"),
        (AugmentConfig, {"ratio": (2.0, 1.0)}, "ratio: expected"),
        (AugmentConfig, {"interpolation": "lanczos"}, "cannot resample by 'lanczos': .*aa none"),
        (AugmentConfig, {"interpolation": "cubic"}, "interpolation: expected"),
    ],
)
def test_refusals(record: type, options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        record(**options)
