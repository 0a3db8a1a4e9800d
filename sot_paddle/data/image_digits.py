"""scikit-learn's handwritten digits as a small real image set that needs no download.

1797 images of 8 x 8 pixels with 17 grey levels, 10 classes. They are split once and for all,
stratified and without a random generator: of each class, every fifth image is for validation. The
same people wrote both parts.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from sot_paddle.atomic import atomic_directory
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_sources import ArraySource

DIGITS = "digits"
"""Stands for a folder on every command line that takes images."""

CLASSES = tuple(str(digit) for digit in range(10))
EVERY = 5
"""Of each class, images 0, 5, 10, ... are for validation."""


def load_digits(img_size: int = 32) -> tuple[ArraySource, ArraySource]:
    """The digits as RGB images, enlarged by bicubic interpolation.

    Args:
        img_size: height and width in pixels.

    Returns:
        Training (1433 images) and validation (364).

    Raises:
        DataError: scikit-learn is missing, or fewer than 8 pixels.
    """
    pixels, labels = _read()
    if img_size < 8:
        raise DataError(f"digits: expected at least 8 pixels, got {img_size}")
    images = np.empty((len(pixels), img_size, img_size, 3), dtype=np.uint8)
    for place, image in enumerate(pixels):
        resized = Image.fromarray(image).resize((img_size, img_size), Image.Resampling.BICUBIC)
        images[place] = np.asarray(resized)[:, :, None]
    chosen = np.zeros(len(labels), dtype=bool)
    for digit in range(len(CLASSES)):
        chosen[np.flatnonzero(labels == digit)[::EVERY]] = True
    train, val = (
        ArraySource(
            images[part], labels[part], CLASSES, [f"digit {place}" for place in np.nonzero(part)[0]]
        )
        for part in (~chosen, chosen)
    )
    return train, val


def _read() -> tuple[np.ndarray, np.ndarray]:
    """uint8 (1797, 8, 8) from 0 to 255, and int64 (1797,)."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise DataError(
            "the digits need scikit-learn: pip install --requirement requirements.txt"
        ) from error
    digits = datasets.load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return grey, digits.target.astype(np.int64)


def write_digits(folder: str | Path, img_size: int = 32) -> Path:
    """Write the digits as an ImageFolder of PNG files: all of it, or nothing.

    Args:
        folder: to be made; must not exist.
        img_size: height and width in pixels.

    Returns:
        ``folder``.

    Raises:
        DataError: it exists already, or cannot be written.
    """
    folder = Path(folder)
    if folder.exists():
        raise DataError(f"{folder}: expected a new folder, got one that exists; name another")
    splits = dict(zip(("train", "val"), load_digits(img_size), strict=True))
    try:
        with atomic_directory(folder) as unfinished:
            for split, source in splits.items():
                for name in source.classes:
                    (unfinished / split / name).mkdir(parents=True)
                for index in range(len(source)):
                    content = io.BytesIO()
                    source.image(index).save(content, format="PNG")
                    place = source.name(index).split()[1].zfill(4)
                    home = unfinished / split / source.classes[source.labels[index]]
                    (home / f"{place}.png").write_bytes(content.getvalue())
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error})") from error
    return folder
