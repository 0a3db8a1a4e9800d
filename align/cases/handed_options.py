"""Whether every option of the image trainer reaches the part of the data that it is for.

Each option is given a value that is not its default; the parts that the trainer builds have to hold
it, under the names of the vision release's flags.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from align.cases.sides.built_records import Named
from align.cases.sides.command_defaults import OF_DATA
from align.cases.sides.picture_folder import SMALL, write_pictures

GIVEN: Mapping[str, Any] = {
    "img_size": 26,
    "scale": (0.3, 0.8),
    "ratio": (0.8, 1.1),
    "train_interpolation": "bilinear",
    "hflip": 0.25,
    "aa": "rand-m5-n1",
    "color_jitter": 0.2,
    "mean": (0.1, 0.2, 0.3),
    "std": (0.4, 0.5, 0.6),
    "mixup": 0.3,
    "cutmix": 0.6,
    "mixup_prob": 0.7,
    "mixup_switch_prob": 0.2,
    "mixup_off_epoch": 2,
    "smoothing": 0.05,
    "reprob": 0.35,
    "remode": "rand",
    "recount": 2,
    "seed": 7,
    "crop_pct": 0.8,
    "interpolation": "bilinear",
}
"""Flag -> a value that is not its default."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    "training transform": (
        *("img_size", "scale", "ratio", "train_interpolation", "hflip", "aa", "color_jitter"),
        *("mean", "std"),
    ),
    "mixing": (
        *("mixup", "cutmix", "mixup_prob", "mixup_switch_prob", "mixup_off_epoch", "smoothing"),
    ),
    "erasing": ("reprob", "remode", "recount"),
    "evaluation transform": ("img_size", "crop_pct", "interpolation", "mean", "std"),
    "batches": ("mean", "std", "seed"),
    "training set": ("seed",),
}
"""Part -> the flags that it takes."""


def given() -> Named:
    """What each part has to hold."""
    return {f"{part}: {flag}": {"value": GIVEN[flag]} for part, fs in _PARTS.items() for flag in fs}


def arrived() -> Named:
    """What the parts hold that the trainer builds from its options."""
    from align.cases.sides.paddle_images import train_config
    from sot_paddle.tasks.images import load_images

    with tempfile.TemporaryDirectory() as scratch:
        folder = write_pictures(Path(scratch), train=SMALL, val=SMALL, classes=3)
        task = load_images(train_config(folder, GIVEN))
    train = task.train
    parts = {
        "training transform": train.images.transform.config,
        "mixing": train.collate.mix,
        "erasing": train.collate.erasing,
        "evaluation transform": task.dev["val"].images.transform,
        "batches": train.collate,
        "training set": train.images,
    }
    found: Named = {}
    for part, flags in _PARTS.items():
        names = {flag: name for name, flag in OF_DATA.get(part, (None, {}))[1].items()}
        for flag in flags:
            held = getattr(parts[part], names.get(flag, flag))
            found[f"{part}: {flag}"] = {"value": held}
    return found
