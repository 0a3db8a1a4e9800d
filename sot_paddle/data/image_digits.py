"""scikit-learn's handwritten digits as a small real image set that needs no download.

1797 images of 8 x 8 pixels with 17 grey levels, 10 classes. They are split once and for all,
stratified and without a random generator: of each class, every fifth image is for validation. The
same people wrote both parts.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_dataset import ArraySource

DIGITS = "digits"
"""Stands for a folder on every command line that takes images."""

CLASSES = tuple(str(digit) for digit in range(10))


def load_digits(img_size: int = 32) -> tuple[ArraySource, ArraySource]:
    """The digits as RGB images of ``img_size`` pixels a side, enlarged by bicubic interpolation.

    Returns:
        Training (1433 images) and validation (364).

    Raises:
        DataError: fewer than 8 pixels.
    """
    from sklearn import datasets  # slow to import, and for the digits alone

    if img_size < 8:
        raise DataError(f"digits: expected at least 8 pixels, got {img_size}")
    digits = datasets.load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # (1797, 8, 8) from 0 to 255
    labels = digits.target.astype(np.int64)
    images = np.empty((len(pixels), img_size, img_size, 3), dtype=np.uint8)
    for place, image in enumerate(pixels):
        resized = Image.fromarray(image).resize((img_size, img_size), Image.Resampling.BICUBIC)
        images[place] = np.asarray(resized)[:, :, None]
    chosen = np.zeros(len(labels), dtype=bool)
    for digit in range(len(CLASSES)):
        chosen[np.flatnonzero(labels == digit)[::5]] = True
    sources = []
    for part in (~chosen, chosen):
        names = [f"digit {number}" for number in np.flatnonzero(part)]
        sources.append(ArraySource(images[part], labels[part], CLASSES, names))
    return sources[0], sources[1]
