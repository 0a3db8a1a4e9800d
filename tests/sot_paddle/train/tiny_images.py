"""An image folder and an image model small enough to train in a second; no tests here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ant", "bee", "cow")
SIZE = 16


def write_images(folder: Path, *, train: int = 9, val: int = 4, classes=CLASSES) -> Path:
    """Write train/<class>/* and val/<class>/*, so many images of each class."""
    draw = np.random.default_rng(5)
    for split, count in (("train", train), ("val", val)):
        for label, name in enumerate(classes):
            place = folder / split / name
            place.mkdir(parents=True)
            for index in range(count):
                pixels = draw.integers(0, 90, (20, 18, 3))
                pixels[..., label % 3] += 120
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(place / f"{name}{index}.png")
    return folder


def command(data: Path, out: Path, *more: str) -> list[str]:
    """Flags of a tiny run without batch normalisation: 4 patches and a class token."""
    return [
        *(str(data), "--model", "sot_tiny", "--output", str(out), "--img-size", str(SIZE)),
        *("--set", "token_type=patch", "--set", "patch_size=8", "--set", "embed_dim=12"),
        *("--set", "depth=2", "--set", "num_heads=3", "--set", "wr_dim=4"),
        *("--set", "head_num_heads=2", "-b", "4", "--workers", "0", "--cpu", "--lr", "1e-2"),
        *("--epochs", "2", "--cooldown-epochs", "1", "--warmup-epochs", "1"),
        *("--model-ema-decay", "0.7", "--log-interval", "3", "--drop-path", "0.2", *more),
    ]


DENSE = ("--set", "token_type=densenet", "--set", "dense_norm=bn")
"""Flags after :func:`command`'s for tokens with batch normalisation."""
