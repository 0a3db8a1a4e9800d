"""Mixup and CutMix by hand, their options; draws are compared by the alignment's cases."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_mixing import (
    Mix,
    MixConfig,
    draw_mix,
    mix_images,
)

CLASSES, HEIGHT, WIDTH = 7, 13, 11
CONFIG = MixConfig(CLASSES)


def batch(count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    images = rng.integers(0, 256, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)
    return images, rng.integers(0, CLASSES, count)


def test_options_of_draws() -> None:
    def kinds(**options) -> set[str]:
        config = MixConfig(CLASSES, **options)
        drawn = [draw_mix(np.random.default_rng(k), config, 32, 32, epoch=5) for k in range(60)]
        return {
            "none" if mix == Mix() else "mixup" if mix.box is None else "cutmix" for mix in drawn
        }

    assert kinds() == {"mixup", "cutmix"}
    assert kinds(cutmix=0.0) == {"mixup"}
    assert kinds(mixup=0.0) == {"cutmix"}
    assert kinds(prob=0.0) == {"none"}
    assert kinds(prob=0.5) == {"none", "mixup", "cutmix"}
    assert kinds(switch_prob=1.0) == {"cutmix"}
    assert kinds(off_epoch=5) == {"none"}
    assert kinds(off_epoch=6) == {"mixup", "cutmix"}


def test_nothing_to_mix() -> None:
    images, _ = batch()
    assert mix_images(images, Mix()) is images


def test_one_class_cannot_be_mixed() -> None:
    with pytest.raises(DataError, match="at least 2 classes"):
        MixConfig(1)
