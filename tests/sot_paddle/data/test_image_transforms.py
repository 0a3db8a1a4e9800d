"""The evaluation transform on photographs against timm's, and its options."""

from __future__ import annotations

import numpy as np
import pytest

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_decoding import decode_rgb
from sot_paddle.data.image_transforms import (
    EvalTransform,
)


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


@pytest.mark.parametrize(
    "options",
    [
        {"img_size": 0},
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
