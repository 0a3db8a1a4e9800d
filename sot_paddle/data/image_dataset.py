"""Training and evaluation images by position; plain objects that any data loader can index.

A training sample's key is the pair (epoch, index). The pixels depend on the run's seed and that
pair only, so any number of workers and processes, and a resumed run, see the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_augment import AugmentConfig, TrainTransform
from sot_paddle.data.image_decoding import CorruptImage
from sot_paddle.data.image_random import generator
from sot_paddle.data.image_sources import ImageSource
from sot_paddle.data.image_transforms import EvalTransform

REPLACEMENT_TRIES = 50

Key = tuple[int, int]
"""Epoch and index, both from 0."""


class ImageSample(NamedTuple):
    """One image.

    Attributes:
        image: augmented, uint8 (img_size, img_size, 3); to evaluate, float32 (3, img_size,
            img_size), None when it cannot be decoded.
        label: its class.
        key: what was asked for.
        corrupt: indices that cannot be decoded: those passed over, or its own.
    """

    image: np.ndarray | None
    label: int
    key: Key | int
    corrupt: tuple[int, ...] = ()


class ImageTrainSet:
    """Augmented training images.

    Args:
        source: the images.
        config: of the augmentation.
        seed: of the whole run.
        on_corrupt: ``"fatal"``, or ``"skip"``: the next image that can be decoded takes the place
            of one that cannot, with its own label, the same in every epoch, worker and process.

    Attributes:
        source: the same.
        transform: made from ``config``.
        named: indices of corrupt images that the user was told of.
    """

    instead = "the next image takes its place"
    """What becomes of a corrupt image that is skipped."""

    def __init__(
        self, source: ImageSource, config: AugmentConfig, seed: int = 0, on_corrupt: str = "fatal"
    ) -> None:
        self.source, self.seed, self.on_corrupt = source, seed, on_corrupt
        self.transform = TrainTransform(config)
        self.named: set[int] = set()

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: Key) -> ImageSample:
        """The image at (epoch, index).

        Raises:
            CorruptImage: it cannot be decoded and that is fatal.
            DataError: too many corrupt images in a row.
            IndexError: no such image.
        """
        epoch, index = key
        image, used, corrupt = self._decode(index)
        pixels = self.transform(image, generator("augment", self.seed, epoch, index))
        return ImageSample(pixels, int(self.source.labels[used]), (epoch, index), corrupt)

    def _decode(self, index: int) -> tuple[Image.Image, int, tuple[int, ...]]:
        """The image, its own index, and the corrupt ones passed over on the way to it."""
        _require_index(index, len(self))
        corrupt: list[int] = []
        for step in range(min(REPLACEMENT_TRIES, len(self))):
            place = (index + step) % len(self)
            try:
                return self.source.image(place), place, tuple(corrupt)
            except CorruptImage:
                if self.on_corrupt == "fatal":
                    raise
                corrupt.append(place)
        raise DataError(
            f"{len(corrupt)} images in a row cannot be decoded, from {self.source.name(index)} to "
            f"{self.source.name(corrupt[-1])}; this is not a matter of a few corrupt files: check "
            "the data set"
        )


@dataclass(frozen=True, eq=False)
class ImageEvalSet:
    """Images for evaluation, in the source's order.

    Attributes:
        source: the images.
        transform: of the evaluation.
        on_corrupt: ``"fatal"``, or ``"skip"``: the sample has no image, the batch leaves it out.
        named: indices of corrupt images that the user was told of.
    """

    source: ImageSource
    transform: EvalTransform
    on_corrupt: str = "fatal"
    named: set[int] = field(default_factory=set)
    instead = "it is left out"
    """What becomes of a corrupt image that is skipped."""

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> ImageSample:
        """One image.

        Raises:
            CorruptImage: it cannot be decoded and that is fatal.
            IndexError: no such image.
        """
        _require_index(index, len(self))
        label = int(self.source.labels[index])
        try:
            image = self.source.image(index)
        except CorruptImage:
            if self.on_corrupt == "fatal":
                raise
            return ImageSample(None, label, index, (index,))
        return ImageSample(self.transform(image), label, index)


def _require_index(index: int, count: int) -> None:
    if not 0 <= index < count:  # also ends Python's iteration over a data set
        raise IndexError(f"image {index} of {count}")
