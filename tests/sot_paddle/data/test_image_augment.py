"""The training transform: images of any size, options; the generators.

Pixels, draws and the crop of last resort: cases ``data_*``.
"""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_augment import AugmentConfig, TrainTransform
from sot_paddle.data.image_random import generator


def test_shape_and_fill() -> None:
    transform = TrainTransform(AugmentConfig(img_size=20))
    assert transform.fill == (124, 116, 104)
    for k, size in enumerate([(47, 39), (1, 1), (1, 30), (300, 2)]):
        pixels = transform(Image.new("RGB", size, (9, 8, 7)), generator("augment", 1, 0, k))
        assert pixels.shape == (20, 20, 3)
        assert pixels.dtype == np.uint8


def test_generators_depend_on_all_of_their_position() -> None:
    positions = [
        (stream, seed, epoch, index)
        for stream in ("augment", "erase", "mix")
        for seed in (0, 1)
        for epoch in (0, 1)
        for index in (0, 1, 2**32 - 1)
    ]
    values = {position: generator(*position).random() for position in positions}
    assert len(set(values.values())) == len(positions)
    assert values[positions[5]] == generator(*positions[5]).random()
    assert generator("mix", 3, np.int64(2), 1).random() == generator("mix", 3, 2, 1).random()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": (0.5, 1.2)}, "scale: expected"),
        ({"scale": (0.0, 1.0)}, "scale: expected"),
        ({"ratio": (2.0, 1.0)}, "ratio: expected"),
        ({"interpolation": "lanczos"}, "cannot resample by 'lanczos': .*aa none"),
        ({"interpolation": "cubic"}, "interpolation: expected"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AugmentConfig(**options)


@pytest.mark.parametrize("more", [{"auto_augment": None}, {"no_aug": True}])
def test_without_randaugment_any_filter_resizes(more: dict) -> None:
    transform = TrainTransform(AugmentConfig(img_size=20, interpolation="lanczos", **more))
    image = Image.fromarray(np.zeros((30, 25, 3), dtype=np.uint8))
    assert transform(image, np.random.default_rng(0)).shape == (20, 20, 3)
