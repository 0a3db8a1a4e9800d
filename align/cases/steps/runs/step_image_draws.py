"""Step ``data`` for training images: each side derives the batches from the same uniform numbers.

Ours is what the trainer builds from its options: the training set and the collate function, asked
as the loader asks them. The reference decides crop, flip, operations, mix and rectangles by its own
code. Both read the same files.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from align.cases.context import Context
from align.cases.kinds.image_case_kinds import DrawnImagesCase
from align.cases.planted_controls import judge
from align.cases.sides import torch_images
from align.cases.sides.picture_folder import SIZES, SMALL, TINY, write_pictures
from align.cases.sides.uniform_source import uniform_numbers
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult

SIDE, CLASSES, SEED = 25, 3, 42
_TRAIN = (*SIZES, *SMALL[:2], *TINY)


def run(case: DrawnImagesCase, dtype: None, context: Context) -> StepResult:
    """Compare every derived quantity of every epoch, in the order of the pipeline."""
    from align.cases.sides import paddle_images  # it loads paddlenlp, which takes seconds

    with tempfile.TemporaryDirectory() as scratch:
        folder = write_pictures(Path(scratch), train=_TRAIN, val=SMALL, classes=CLASSES)
        options = {"img_size": SIDE, "seed": SEED, **case.options}
        reference = list(torch_images.training_epochs(folder, options, case.epochs, _numbers))

        def compare(changes: dict) -> Iterator[Comparison]:
            epochs = paddle_images.training_epochs(folder, options | changes, case.epochs)
            for mine, theirs in zip(epochs, reference, strict=True):
                yield from compare_mappings(mine, theirs, functools.partial(_rule, theirs))

        comparisons = list(compare({}))
        controls = []
        for name, (changes, planted) in paddle_images.faults(folder, options).items():
            with planted():
                controls.append(judge(name, compare(changes), "our pipeline"))
    return StepResult(
        case.name,
        "data",
        None,
        comparisons,
        controls,
        framework_free=True,
        note=f"{case.epochs} batches of {len(_TRAIN)}; reference: torchvision, timm and PyTorch",
    )


def _numbers(stream: str, epoch: int, index: int) -> np.ndarray:
    return uniform_numbers(stream, SEED, epoch, index)


def _rule(reference: Arrays, name: str):
    kind = "pixels" if reference[name].dtype.kind == "f" else "data"
    return TOLERANCES[kind, None]
