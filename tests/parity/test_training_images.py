"""Training images: each side derives the batches from the same uniform numbers and files.

Ours is what the trainer builds from its options: the training set and the collate function, asked
as the loader asks them. The reference decides crop, flip, operations, mix and rectangles by its own
code, with torchvision, timm and PyTorch. No framework of ours computes here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import sot_torch_ref  # noqa: F401  isort: skip (torchvision beside a CPU torch)
from torchvision.datasets import ImageFolder

from sot_paddle.data import image_dataset, image_mixing
from sot_paddle.data.image_transforms import TrainDraws
from sot_paddle.tasks.image_options import ImageTrainConfig
from sot_paddle.tasks.images import ImageSplit, load_images
from sot_torch_ref.train.image_transforms import operation_names
from sot_torch_ref.train.training_batch import BatchRecipe, TrainingBatch, training_batch
from sot_torch_ref.train.training_image import TrainingRecipe, TransformedImage, transform_image
from sot_torch_ref.train.uniform_draws import UniformDraws
from tests.parity.pictures import SIZES, SMALL, TINY, write_pictures
from tests.parity.sides import assert_same
from tests.parity.uniform_source import uniform_generator, uniform_numbers

Arrays = dict[str, np.ndarray]
SIDE, CLASSES, SEED = 25, 3, 42
TRAIN = (*SIZES, *SMALL[:2], *TINY)
OPERATIONS_SHOWN = 4
WHOLE = {"mixup": 0.0, "cutmix": 0.0}
OPTIONS: dict[str, tuple[int, dict[str, Any]]] = {  # epochs, and what differs from the defaults
    "defaults": (4, {}),
    # of a picture of one pixel, crops of which one side rounds to no pixel
    "mixup": (
        4,
        {
            **{"cutmix": 0.0, "aa": None, "color_jitter": 0.0, "reprob": 0.0},
            **{"mixup_off_epoch": 3, "scale": (0.2, 0.4)},
        },
    ),
    "cutmix": (4, {"mixup": 0.0, "no_aug": True, "train_interpolation": "bicubic"}),
    "erasing": (
        4,
        {
            **WHOLE,
            "aa": "rand-m1-n3-mstd2-inc1",  # magnitudes below 0
            "mean": (0.3, 0.6, 1.02),  # the last is no colour: the fill stops at 255
            "reprob": 1.0,
        },
    ),
    "attempts of a crop fail": (
        2,
        {
            **WHOLE,
            "scale": (0.9, 1.0),
            "ratio": (0.9, 1.1),
            "train_interpolation": "bilinear",
            "reprob": 0.8,
        },
    ),
    # no crop of the whole area fits unless it has the picture's own shape: the central is left
    "crop of the whole area": (
        4,
        {**WHOLE, "scale": (1.0, 1.0), "aa": None, "color_jitter": 0.0, "reprob": 0.0},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_training_batches(name: str, tmp_path: Path) -> None:
    """Every derived quantity of every epoch, all images in one batch."""
    epochs, changes = OPTIONS[name]
    write_pictures(tmp_path, train=TRAIN, val=SMALL, classes=CLASSES, validation="validation")
    options = {"img_size": SIDE, "seed": SEED, **changes}
    config = ImageTrainConfig(
        data_dir=str(tmp_path),
        model="sot_tiny",
        workers=0,
        cpu=True,
        **options,
    )
    split = load_images(config).train
    for epoch in range(epochs):
        assert_same(paddle_epoch(split, epoch), torch_epoch(tmp_path / "train", options, epoch))


def operation_numbers() -> dict[str, int]:
    """Number the operations in timm's order."""
    return {name: number for number, name in enumerate(operation_names())}


def operation_arrays(operations: list[tuple[str, float]]) -> Arrays:
    """Make equally long arrays of the numbers and the arguments of an image's operations."""
    numbers, padding = operation_numbers(), OPERATIONS_SHOWN - len(operations)
    names = [numbers.get(name, -2) for name, _ in operations]
    arguments = [argument for _, argument in operations]
    return {
        "operations": np.array(names + [-1] * padding),
        "arguments": np.array(arguments + [0.0] * padding, np.float64),
    }


def paddle_epoch(split: ImageSplit, epoch: int) -> Arrays:
    """Ask the trainer's training set and collate function; draw once more, to show the draws."""
    images = split.images
    with mock.patch.object(image_dataset, "generator", uniform_generator):
        samples = [images[epoch, index] for index in range(len(images))]
        batch = split.collate(samples)
    arrays: Arrays = {}
    for index, sample in enumerate(samples):
        rng = uniform_generator("augment", images.seed, epoch, index)
        draws = images.transform.draw(rng, images.source.image(index).size)
        for name, array in paddle_image(draws, sample).items():
            arrays[f"image {index}/{name}"] = array
    return arrays | paddle_batch(split, epoch, np.stack([one.image for one in samples]), batch)


def paddle_image(draws: TrainDraws, sample: image_dataset.ImageSample) -> Arrays:
    arrays = {"label": np.asarray(sample.label), "pixels": sample.image}
    if draws.crop is not None:
        arrays["crop"] = np.array(dataclasses.astuple(draws.crop))
        arrays["flip"] = np.asarray(int(draws.flip))
        operations = [(one.name, float(one.argument or 0.0)) for one in draws.operations]
        arrays |= operation_arrays(operations)
    return arrays


def paddle_batch(split: ImageSplit, epoch: int, pixels: np.ndarray, batch: Arrays) -> Arrays:
    collate, mix = split.collate, image_mixing.Mix()
    if collate.mix is not None:
        rng = uniform_generator("mix", collate.seed, epoch, 0)
        mix = image_mixing.draw_mix(rng, collate.mix, *pixels.shape[1:3], epoch=epoch)
    box = mix.box or (0, 0, 0, 0)
    arrays = {
        "cutmix box": np.asarray(box),
        "lam": np.asarray(mix.lam),
        "mixed bytes": image_mixing.mix_images(pixels, mix).transpose(0, 3, 1, 2),
        "targets": batch["labels"],
        "images": batch["images"],
    }
    for index in range(len(pixels)):
        boxes = []
        if collate.erasing is not None:
            rng = uniform_generator("erase", collate.seed, epoch, index)
            erasure = image_mixing.draw_erasure(rng, collate.erasing, batch["images"].shape[1:])
            boxes = [(one.top, one.left, one.height, one.width) for one in (erasure,) if one]
        arrays[f"image {index}/erased"] = boxes_array(boxes)
    return arrays


def boxes_array(boxes: list[tuple[int, int, int, int]]) -> np.ndarray:
    """Put how many rectangles there are before the numbers of each; there may be none."""
    return np.concatenate([[len(boxes)], *boxes]).astype(np.int64)


IMAGE_OPTIONS = {
    "img_size": "img_size",
    "scale": "scale",
    "ratio": "ratio",
    "train_interpolation": "interpolation",
    "hflip": "hflip",
    "aa": "auto_augment",
    "color_jitter": "color_jitter",
    "no_aug": "no_aug",
    "mean": "mean",
}
BATCH_OPTIONS = {
    "mixup": "mixup",
    "cutmix": "cutmix",
    "mixup_off_epoch": "off_epoch",
    "reprob": "erase_prob",
    "mean": "mean",
}
"""Names of the options of the trainer -> those of the recipes of the reference."""


def torch_epoch(folder: Path, options: Mapping[str, Any], epoch: int) -> Arrays:
    """Derive an epoch's batch of all images by the reference's code."""
    assert set(options) <= {"seed", *IMAGE_OPTIONS, *BATCH_OPTIONS}
    changed = {new: options[name] for name, new in IMAGE_OPTIONS.items() if name in options}
    image_recipe = TrainingRecipe(**changed)
    changed = {new: options[name] for name, new in BATCH_OPTIONS.items() if name in options}
    if options.get("no_aug"):
        changed["erase_prob"] = 0.0
    batch_recipe = BatchRecipe(**changed)
    source = ImageFolder(str(folder))
    arrays: Arrays = {}
    images = []
    for index, (picture, label) in enumerate(source):
        draws = UniformDraws(uniform_numbers("augment", SEED, epoch, index))
        images.append(transform_image(picture, draws, image_recipe))
        for name, array in torch_image(images[-1], label).items():
            arrays[f"image {index}/{name}"] = array
    batch = training_batch(
        [image.pixels for image in images],
        source.targets,
        len(source.classes),
        batch_recipe,
        UniformDraws(uniform_numbers("mix", SEED, epoch, 0)),
        [UniformDraws(uniform_numbers("erase", SEED, epoch, at)) for at in range(len(images))],
        epoch,
    )
    return arrays | torch_batch(batch)


def torch_image(image: TransformedImage, label: int) -> Arrays:
    arrays = {"label": np.asarray(label), "pixels": image.pixels}
    if image.crop is not None:
        arrays["crop"] = np.asarray(image.crop)
        arrays["flip"] = np.asarray(int(image.flipped))
        operations = [(name, float((*given, 0.0)[0])) for name, given in image.operations]
        arrays |= operation_arrays(operations)
    return arrays


def torch_batch(batch: TrainingBatch) -> Arrays:
    arrays = {
        "cutmix box": np.asarray(batch.box or (0, 0, 0, 0)),
        "lam": np.asarray(batch.lam),
        "mixed bytes": batch.mixed.numpy(),
        "targets": batch.labels.numpy(),
        "images": batch.images.numpy(),
    }
    for index, boxes in enumerate(batch.erased):
        arrays[f"image {index}/erased"] = boxes_array(boxes)
    return arrays
