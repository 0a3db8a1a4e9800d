"""Pictures that a run of the suite draws itself, alone or as a folder of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

Size = tuple[int, int]
SIZES: tuple[Size, ...] = ((40, 57), (73, 48), (50, 50), (31, 90))
"""Width, height: both orientations, odd margins."""
SMALL: tuple[Size, ...] = ((9, 5), (13, 31), (33, 11), (24, 23))
"""Smaller than the crops in one direction or both."""
TINY: tuple[Size, ...] = ((1, 1), (2, 3))
"""Of a few pixels: a crop of a tenth of them has none."""


def draw_pictures(sizes: Sequence[Size] = SIZES, seed: int = 5) -> list[Image.Image]:
    """Smooth colour gradients with noise: every operation changes them."""
    rng = np.random.default_rng(seed)
    pictures = []
    for width, height in sizes:
        rows, columns = np.mgrid[0:height, 0:width]
        waves = [
            np.sin(rows * rng.uniform(0.05, 0.4) + columns * rng.uniform(0.05, 0.4) + phase)
            for phase in rng.uniform(0, 6, 3)
        ]
        noisy = 128 + 90 * np.stack(waves, axis=-1) + rng.normal(0, 12, (height, width, 3))
        pictures.append(Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)))
    return pictures


def write_pictures(
    folder: Path,
    *,
    train: Sequence[Size],
    val: Sequence[Size],
    classes: int,
    validation: str = "val",
) -> Path:
    """Write ``train/<class>/*.png`` and ``val/<class>/*.png``, the pictures dealt to the classes.

    Each class has a brightness of its own. What a folder of pictures may be besides: the second
    picture's extension is in capitals, the third is grey, the last lies in a linked folder of its
    class; beside classes and pictures there are notes.

    Args:
        folder: to be filled.
        train: width and height of each training picture.
        val: likewise for validation.
        classes: how many; each gets at least one picture of either split.
        validation: name of that split's folder.

    Returns:
        ``folder``.
    """
    for seed, (split, sizes) in enumerate((("train", train), (validation, val))):
        pictures = list(enumerate(draw_pictures(sizes, seed)))
        notes, linked = folder / split / "class0" / "notes.txt", folder / f"linked {split}"
        # in no order of names, so that a folder that is not sorted shows
        for number, picture in (*pictures[1::-1], *pictures[2:3], *pictures[:2:-1]):
            place = folder / split / f"class{number % classes}"
            place.mkdir(parents=True, exist_ok=True)
            brightness = 0.2 + 1.2 * (number % classes) / classes
            picture = ImageEnhance.Brightness(picture).enhance(brightness)
            if number == len(pictures) - 1:
                linked.mkdir()
                (place / "more").symlink_to(linked)
                place /= "more"
            picture = picture.convert("L") if number == 2 else picture
            picture.save(place / f"{number:03}.{'PNG' if number == 1 else 'png'}")
        for place in (notes, notes.parents[1] / notes.name):
            place.write_text("no picture\n", encoding="utf-8")
    return folder
