"""The Paddle side of image data: what the trainer builds from its options, asked for batches."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from align.cases.sides import torch_images
from align.cases.sides.uniform_source import uniform_generator
from align.record.arrays import Arrays
from sot_paddle.data import image_augment, image_batches, image_dataset, image_mixing
from sot_paddle.data.image_augment import TrainDraws
from sot_paddle.tasks.image_options import ImageTrainConfig
from sot_paddle.tasks.images import ImageSplit, load_images

PipelineFault = tuple[dict[str, Any], Callable[[], contextlib.AbstractContextManager]]
"""Changed options, and a change of the product's functions."""


def train_config(folder: Path, options: Mapping[str, Any]) -> ImageTrainConfig:
    """The trainer's options for a folder; ``skip`` saves a pass over the validation images."""
    fixed = {"model": "sot_tiny", "workers": 0, "on_corrupt": "skip", "cpu": True}
    return ImageTrainConfig(data_dir=str(folder), **{**fixed, **options})


def training_epochs(folder: Path, options: Mapping[str, Any], epochs: int) -> Iterator[Arrays]:
    """What becomes of a folder's training images, all in one batch, epoch after epoch.

    The training set and the collate function are the trainer's own; the draws are made once more
    to be shown.

    Yields:
        Everything that was drawn or made, by name, in the order of the pipeline.
    """
    split = load_images(train_config(folder, options)).train
    images = split.images
    for epoch in range(epochs):
        with (
            mock.patch.object(image_dataset, "generator", uniform_generator),
            mock.patch.object(image_batches, "generator", uniform_generator),
        ):
            samples = [images[epoch, index] for index in range(len(images))]
            batch = split.collate(samples)
        found: Arrays = {}
        for index, sample in enumerate(samples):
            size = images.source.image(index).size
            rng = uniform_generator("augment", images.seed, epoch, index)
            draws = images.transform.draw(rng, size)
            found |= _image_arrays(f"epoch {epoch}/image {index}", draws, sample)
        yield found | _batch_arrays(epoch, split, np.stack([s.image for s in samples]), batch)


def _image_arrays(key: str, draws: TrainDraws, sample: image_dataset.ImageSample) -> Arrays:
    found = {f"{key}/label": np.asarray(sample.label)}
    if draws.crop is not None:
        names = torch_images.operation_numbers()
        found[f"{key}/crop"] = np.array(dataclasses.astuple(draws.crop))
        found[f"{key}/flip"] = np.asarray(int(draws.flip))
        done = [(names.get(o.name, -2), float(o.argument or 0.0)) for o in draws.operations]
        shown = torch_images.OPERATIONS_SHOWN
        padded = np.array(done + [(-1, 0.0)] * (shown - len(done)))
        found[f"{key}/operations"] = padded[:, 0].astype(np.int64)
        found[f"{key}/arguments"] = padded[:, 1]
    if draws.jitter:
        found[f"{key}/colour factors"] = np.asarray(draws.jitter)
    return found | {f"{key}/pixels": sample.image}


def _batch_arrays(epoch: int, split: ImageSplit, pixels: np.ndarray, batch: Arrays) -> Arrays:
    key, collate = f"epoch {epoch}", split.collate
    mix = image_mixing.Mix()
    if collate.mix is not None:
        rng = uniform_generator("mix", collate.seed, epoch, 0)
        mix = image_batches.draw_mix(rng, collate.mix, *pixels.shape[1:3], epoch=epoch)
    box = (0, 0, 0, 0) if mix.box is None else dataclasses.astuple(mix.box)
    found = {
        f"{key}/cutmix box": np.asarray(box),
        f"{key}/lam": np.asarray(mix.lam),
        f"{key}/mixed bytes": image_batches.mix_images(pixels, mix).transpose(0, 3, 1, 2),
        f"{key}/targets": batch["labels"],
    }
    count = 1 if collate.erasing is None else collate.erasing.count
    for index in range(len(pixels)):
        boxes = []
        if collate.erasing is not None:
            rng = uniform_generator("erase", collate.seed, epoch, index)
            drawn = image_batches.draw_erasures(rng, collate.erasing, batch["images"].shape[1:])
            boxes = [(e.top, e.left, e.height, e.width) for e in drawn]
        padded = [*boxes, *[(-1, -1, -1, -1)] * (count - len(boxes))]
        found[f"{key}/image {index}/erased"] = np.asarray(padded)
    return found | {f"{key}/images": batch["images"]}


def faults(folder: Path, options: Mapping[str, Any]) -> dict[str, PipelineFault]:
    """Changed options and changed functions of the product, those that apply to the options."""
    config = train_config(folder, options)
    found: dict[str, PipelineFault] = {
        "channels of the mean reversed": ({"mean": config.mean[::-1]}, contextlib.nullcontext),
        "means and deviations exchanged": (
            {"mean": config.std, "std": config.mean},
            contextlib.nullcontext,
        ),
    }
    if not config.no_aug:
        found["height and width of the crop exchanged"] = ({}, _crop_exchanged)
        found["no flip, or always"] = (
            {"hflip": 0.0 if config.hflip else 1.0},
            contextlib.nullcontext,
        )
    if config.aa and not config.no_aug:
        other = config.aa.removesuffix("-inc1") if "inc1" in config.aa else f"{config.aa}-inc1"
        found["the other set of operations"] = ({"aa": other}, contextlib.nullcontext)
    if config.mixes:
        found["no label smoothing"] = ({"smoothing": 0.0}, contextlib.nullcontext)
        found["lam and 1 - lam swapped"] = ({}, _lam_swapped)
    if config.cutmix:
        found["height and width of the box exchanged"] = ({}, _box_exchanged)
    if config.reprob and not config.no_aug:
        found["rectangles one row higher"] = ({}, _rectangles_moved)
    return found


def _crop_exchanged() -> contextlib.AbstractContextManager:
    draw = image_augment.draw_crop

    def exchanged(*arguments):
        crop = draw(*arguments)
        return dataclasses.replace(crop, height=crop.width, width=crop.height)

    return mock.patch.object(image_augment, "draw_crop", exchanged)


def _lam_swapped() -> contextlib.AbstractContextManager:
    mix = image_mixing.mix_labels
    swapped = lambda labels, classes, lam, eps: mix(labels, classes, 1.0 - lam, eps)  # noqa: E731
    return mock.patch.object(image_batches, "mix_labels", swapped)


def _box_exchanged() -> contextlib.AbstractContextManager:
    cut = image_mixing.cut_box

    def exchanged(lam, center, height, width):
        mix = cut(lam, center, height, width)
        box = image_mixing.Box(mix.box.left, mix.box.right, mix.box.top, mix.box.bottom)
        return dataclasses.replace(mix, box=box)

    return mock.patch.object(image_mixing, "cut_box", exchanged)


def _rectangles_moved() -> contextlib.AbstractContextManager:
    draw = image_batches.draw_erasures

    def moved(*arguments):
        return tuple(dataclasses.replace(e, top=(e.top or 2) - 1) for e in draw(*arguments))

    return mock.patch.object(image_batches, "draw_erasures", moved)
