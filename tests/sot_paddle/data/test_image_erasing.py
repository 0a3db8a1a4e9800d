"""Random erasing: when not; draws and pixels are compared by the alignment's cases."""

from __future__ import annotations

import numpy as np

from sot_paddle.data.image_erasing import ErasingConfig, apply_erasures, draw_erasures

SHAPE = (3, 37, 29)


def test_none_for_probability_zero_and_for_images_too_small() -> None:
    rng = np.random.default_rng(0)
    assert not any(draw_erasures(rng, ErasingConfig(prob=0.0), SHAPE) for _ in range(50))
    image = np.zeros((3, 1, 1), np.float32)
    for _ in range(20):
        apply_erasures(image, draw_erasures(rng, ErasingConfig(prob=1.0), image.shape))
    assert not image.any()
