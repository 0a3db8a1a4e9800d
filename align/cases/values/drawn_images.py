"""Step ``data`` for training images: each side derives the batches from the same uniform numbers.

Ours is what the trainer builds from its options: the training set and the collate function, asked
as the loader asks them. The reference decides crop, flip, operations, mix and rectangles by its own
code. Both read the same files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.cases.sides import torch_images
from align.cases.sides.picture_folder import SIZES, SMALL, TINY, write_pictures
from align.cases.sides.uniform_source import uniform_numbers
from align.cases.values.pixel_values import pixel_rule
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison

SIDE, CLASSES, SEED = 25, 3, 42
_TRAIN = (*SIZES, *SMALL[:2], *TINY)


def drawn_images(setting: Setting, *, epochs: int = 4, **changed: Any) -> BothSides:
    """Every derived quantity of every epoch, in the order of the pipeline.

    Args:
        setting: of the case.
        epochs: one batch of each.
        changed: options of ``ImageTrainConfig`` that differ from its defaults; the reference has
            its own defaults and is told the same differences.
    """
    from align.cases.sides import paddle_images  # it loads paddlenlp, which takes seconds

    folder = write_pictures(
        setting.folder(), train=_TRAIN, val=SMALL, classes=CLASSES, validation="validation"
    )
    options = {"img_size": SIDE, "seed": SEED, **changed}

    def compare(ours: paddle_images.PipelineFault, reference: list[Arrays]) -> Iterator[Comparison]:
        changes, planted = ours
        with planted():
            found = paddle_images.training_epochs(folder, options | changes, epochs)
            for mine, theirs in zip(found, reference, strict=True):
                rules = {name: pixel_rule(array) for name, array in theirs.items()}
                yield from compare_mappings(mine, theirs, rules.__getitem__)

    return BothSides(
        ({}, contextlib.nullcontext),
        list(torch_images.training_epochs(folder, options, epochs, _numbers)),
        paddle_images.faults(folder, options),
        "our pipeline",
        compare=compare,
        framework_free=True,
        note=f"{epochs} batches of {len(_TRAIN)}; reference: torchvision, timm and PyTorch",
    )


def _numbers(stream: str, epoch: int, index: int) -> np.ndarray:
    return uniform_numbers(stream, SEED, epoch, index)
