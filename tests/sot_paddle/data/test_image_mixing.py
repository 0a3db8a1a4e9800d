"""Options of mixup and CutMix, erasing of nothing; draws and pixels: tests/parity."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_mixing import (
    ErasingConfig,
    Mix,
    MixConfig,
    apply_erasures,
    draw_erasures,
    draw_mix,
)


def test_options_of_draws() -> None:
    def kinds(**options) -> set[str]:
        config = MixConfig(7, **options)
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


def test_one_class_cannot_be_mixed() -> None:
    with pytest.raises(DataError, match="at least 2 classes"):
        MixConfig(1)


def test_nothing_is_erased_for_probability_zero_and_of_images_too_small() -> None:
    rng = np.random.default_rng(0)
    config = ErasingConfig(prob=0.0)
    assert not any(draw_erasures(rng, config, (3, 37, 29)) for _ in range(50))
    image = np.zeros((3, 1, 1), np.float32)
    for _ in range(20):
        apply_erasures(image, draw_erasures(rng, ErasingConfig(prob=1.0), image.shape))
    assert not image.any()
