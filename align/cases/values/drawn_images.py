"""Step ``data`` for training images: each side derives the batches from the same uniform numbers.

Ours is what the trainer builds from its options: the training set and the collate function, asked
as the loader asks them. The reference decides crop, flip, operations, mix and rectangles by its own
code. Both read the same files.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.cases.sides import torch_images
from align.cases.sides.picture_folder import SIZES, SMALL, TINY, write_pictures
from align.cases.sides.uniform_source import uniform_generator, uniform_numbers
from align.cases.values.pixel_values import arrays_of_images, pixel_rule
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison
from sot_paddle.data import image_erasing, image_mixing
from sot_torch_ref.train.mixup import drawn_mix
from sot_torch_ref.train.random_erasing import drawn_boxes
from sot_torch_ref.train.uniform_draws import UniformDraws

SIDE, CLASSES, SEED = 25, 3, 42
_TRAIN = (*SIZES, *SMALL[:2], *TINY)
_WIDE, _DRAWS = (23, 59), 12
_STRIP, _MANY = (7, 300), 60
"""So flat that a rectangle seldom fits: how often it is tried decides whether there is one."""


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


def wide_boxes(setting: Setting) -> BothSides:
    """Boxes of CutMix and of random erasing in a wide image; those of a run are square."""
    mixing = image_mixing.MixConfig(CLASSES, mixup=0.0)
    erasing = image_erasing.ErasingConfig(prob=1.0, mode="const", count=2)

    def ours(height: int, width: int) -> Arrays:
        found: Arrays = {}
        for index in range(_DRAWS):
            drawn = uniform_generator("mix", SEED, 0, index)
            mix = image_mixing.draw_mix(drawn, mixing, height, width)
            found[f"mix {index}/box"] = np.asarray(dataclasses.astuple(mix.box))
            found[f"mix {index}/lam"] = np.asarray(mix.lam)
        for name, index, shape in _erased((height, width)):
            drawn = uniform_generator("erase", SEED, 0, index)
            erased = image_erasing.draw_erasures(drawn, erasing, (3, *shape))
            boxes = [(one.top, one.left, one.height, one.width) for one in erased]
            found[name] = _counted(boxes)
        return found

    reference: Arrays = {}
    for index in range(_DRAWS):
        draws = UniformDraws(_numbers("mix", 0, index))
        lam, box = drawn_mix(draws, *_WIDE, mixup=0.0)
        reference[f"mix {index}/box"] = np.asarray(box)
        reference[f"mix {index}/lam"] = np.asarray(lam)
    for name, index, shape in _erased(_WIDE):
        draws = UniformDraws(_numbers("erase", 0, index))
        erased = drawn_boxes(draws, (3, *shape), prob=1.0, mode="const", count=2)
        reference[name] = _counted([box for box, _ in erased])
    faults = {"height and width exchanged": lambda: ours(*_WIDE[::-1])}
    return arrays_of_images(ours(*_WIDE), reference, faults, "PyTorch")


def _erased(wide: tuple[int, int]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Name, index and size of every image in which rectangles are drawn."""
    sizes = (
        ("erased", _DRAWS, wide),
        ("erased of a strip", _MANY, _STRIP),
        ("erased of a column", _MANY, _STRIP[::-1]),
    )
    for kind, count, shape in sizes:
        yield from ((f"{kind} {index}", index, shape) for index in range(count))


def _counted(boxes: Sequence[Sequence[int]]) -> np.ndarray:
    """How many rectangles, and then the numbers of each; there may be none."""
    return np.concatenate([[len(boxes)], *boxes])
