"""Mixup and CutMix against timm's collate for exchanged draws, by hand, and as statistics."""

from __future__ import annotations

import numpy as np
import pytest

import sot_torch_ref  # noqa: F401  (makes timm importable beside a CPU build of torch)
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_mixing import (
    Box,
    Mix,
    MixConfig,
    cut_box,
    draw_mix,
    mix_images,
    mix_labels,
)

CLASSES, HEIGHT, WIDTH = 7, 13, 11
CONFIG = MixConfig(CLASSES)


def batch(count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    images = rng.integers(0, 256, (count, HEIGHT, WIDTH, 3), dtype=np.uint8)
    return images, rng.integers(0, CLASSES, count)


class Exchanged:
    """timm's FastCollateMixup with a given draw in place of its own."""

    def __init__(self, monkeypatch, mix: Mix, raw_lam: float) -> None:
        from timm.data import mixup

        self.collate = mixup.FastCollateMixup(
            mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES
        )
        monkeypatch.setattr(
            self.collate, "_params_per_batch", lambda: (raw_lam, mix.box is not None)
        )
        if mix.box is not None:  # timm 1.0.31 cuts odd sides otherwise than 0.3.4: give it the box
            box = (mix.box.top, mix.box.bottom, mix.box.left, mix.box.right)
            monkeypatch.setattr(mixup, "rand_bbox", lambda *_, **__: box)

    def __call__(self, images: np.ndarray, labels: np.ndarray):
        items = [(i.transpose(2, 0, 1), int(t)) for i, t in zip(images, labels, strict=True)]
        pixels, targets = self.collate(items)
        return pixels.numpy().transpose(0, 2, 3, 1), targets.numpy()


@pytest.mark.parametrize("seed", range(24))
def test_equal_to_timm_for_the_same_draws(seed, monkeypatch) -> None:
    images, labels = batch()
    before = images.copy()
    mix = draw_mix(np.random.default_rng(seed), CONFIG, HEIGHT, WIDTH)
    theirs, targets = Exchanged(monkeypatch, mix, mix.lam if mix.box is None else 0.5)(
        images, labels
    )
    assert np.array_equal(mix_images(images, mix), theirs)
    assert np.array_equal(images, before)
    ours = mix_labels(labels, CLASSES, mix.lam, 0.1)
    assert ours.dtype == targets.dtype == np.float32
    assert np.array_equal(ours, targets)
    assert np.allclose(ours.sum(axis=1), 1, atol=1e-6)


def test_both_kinds_occur_and_change_the_images() -> None:
    images, _ = batch()
    mixes = [draw_mix(np.random.default_rng(k), CONFIG, HEIGHT, WIDTH) for k in range(24)]
    assert {mix.box is None for mix in mixes} == {True, False}
    assert sum(not np.array_equal(mix_images(images, mix), images) for mix in mixes) > 16


def test_boxes_by_hand() -> None:
    # sqrt(1 - .75) = .5: sides int(6.5) = 6 and int(5.5) = 5, halves 3 and 2
    assert cut_box(0.75, (6, 5), 13, 11) == Mix(1 - 6 * 4 / 143, Box(3, 9, 3, 7))
    assert cut_box(0.75, (1, 10), 13, 11) == Mix(1 - 4 * 3 / 143, Box(0, 4, 8, 11))
    assert cut_box(1.0, (6, 5), 13, 11).lam == 1.0
    full = cut_box(0.0, (6, 5), 12, 10)
    assert full == Mix(0.0, Box(0, 12, 0, 10))


def test_statistics_of_draws() -> None:
    rng, count = np.random.default_rng(5), 4000
    mixes = [draw_mix(rng, CONFIG, 64, 64) for _ in range(count)]
    cuts = [mix for mix in mixes if mix.box is not None]
    lams = np.array([mix.lam for mix in mixes if mix.box is None])
    assert abs(len(cuts) / count - 0.5) < 0.04
    # Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1))
    assert abs(lams.mean() - 0.5) < 0.03
    assert abs(lams.var() - 1 / (4 * 2.6)) < 0.01
    for mix in cuts:
        area = (mix.box.bottom - mix.box.top) * (mix.box.right - mix.box.left)
        assert mix.lam == 1 - area / 4096
    assert 0.6 < np.mean([mix.lam for mix in cuts]) < 0.75  # clipped boxes: above 1/2
    tops = [mix.box.top + mix.box.bottom for mix in cuts]
    assert abs(np.mean(tops) / 2 - 31.5) < 1.5


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


def test_odd_batches_and_foreign_labels_are_refused() -> None:
    images, labels = batch(5)
    with pytest.raises(DataError, match="expected an even number of images, got 5"):
        mix_images(images, Mix(0.5))
    with pytest.raises(DataError, match=r"labels: expected 0 to 2, got \d to \d"):
        mix_labels(labels, 3, 0.5, 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "at least 2 classes"),
        ({"mixup": 0.0, "cutmix": 0.0}, "one of them above 0"),
        ({"mixup": -1.0}, "expected mixup and cutmix from 0"),
        ({"mode": "elem"}, "expected batch"),
        ({"prob": 1.2}, "probabilities"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"off_epoch": -1}, "off_epoch"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        MixConfig(**{"num_classes": 3, **options})
