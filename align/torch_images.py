"""The PyTorch side of image data: training batches from a folder, by the reference's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sot_torch_ref  # noqa: F401  isort: skip (torchvision beside a CPU torch)
from align.sides import Arrays
from sot_torch_ref.train.training_batch import BatchRecipe, TrainingBatch, training_batch
from sot_torch_ref.train.training_image import (
    TrainingRecipe,
    TransformedImage,
    transform_image,
)
from sot_torch_ref.train.uniform_draws import UniformDraws

OPERATIONS_SHOWN = 4
Numbers = Callable[[str, int, int], np.ndarray]
"""(stream, epoch, index) to uniform numbers."""

_IMAGE_OPTIONS = {
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
_BATCH_OPTIONS = {
    "mixup": "mixup",
    "cutmix": "cutmix",
    "mixup_prob": "mix_prob",
    "mixup_switch_prob": "switch_prob",
    "smoothing": "smoothing",
    "reprob": "erase_prob",
    "remode": "erase_mode",
    "recount": "erase_count",
    "mean": "mean",
    "std": "std",
}
"""Names of the trainer's options -> those of the reference's recipes."""


def recipes(options: Mapping[str, Any]) -> tuple[TrainingRecipe, BatchRecipe]:
    """The published recipes with the trainer's options changed; ``no_aug`` erases nothing."""
    first = {ours: options[name] for name, ours in _IMAGE_OPTIONS.items() if name in options}
    second = {ours: options[name] for name, ours in _BATCH_OPTIONS.items() if name in options}
    if options.get("no_aug"):
        second["erase_prob"] = 0.0
    return TrainingRecipe(**first), BatchRecipe(**second)


def training_epochs(
    folder: Path, options: Mapping[str, Any], epochs: int, numbers: Numbers
) -> Iterator[Arrays]:
    """What becomes of a folder's training images, all in one batch, epoch after epoch.

    Yields:
        Everything that was derived, by name, in the order in which it was.
    """
    from torchvision.datasets import ImageFolder

    source = ImageFolder(str(folder / "train"))
    image_recipe, batch_recipe = recipes(options)
    names = operation_numbers()
    for epoch in range(epochs):
        found: Arrays = {}
        images: list[TransformedImage] = []
        for index, (picture, label) in enumerate(source):
            draws = UniformDraws(numbers("augment", epoch, index))
            images.append(transform_image(picture, draws, image_recipe))
            found |= _image_arrays(f"epoch {epoch}/image {index}", images[-1], label, names)
        streams = [UniformDraws(numbers("erase", epoch, at)) for at in range(len(images))]
        batch = training_batch(
            [image.pixels for image in images],
            source.targets,
            len(source.classes),
            batch_recipe,
            UniformDraws(numbers("mix", epoch, 0)),
            streams,
        )
        yield found | _batch_arrays(f"epoch {epoch}", batch, batch_recipe.erase_count)


def operation_numbers() -> dict[str, int]:
    """A number for each operation of timm's two sets, in timm's order."""
    from sot_torch_ref.train.image_transforms import operation_names

    both = [name for kind in (True, False) for name in operation_names(increasing=kind)]
    return {name: number for number, name in enumerate(dict.fromkeys(both))}


def _image_arrays(
    key: str, image: TransformedImage, label: int, names: Mapping[str, int]
) -> Arrays:
    found = {f"{key}/label": np.asarray(label)}
    if image.crop is not None:
        found[f"{key}/crop"] = np.asarray(image.crop)
        found[f"{key}/flip"] = np.asarray(int(image.flipped))
        done = [(names[name], float((*given, 0.0)[0])) for name, given in image.operations]
        padded = np.array(done + [(-1, 0.0)] * (OPERATIONS_SHOWN - len(done)))
        found[f"{key}/operations"] = padded[:, 0].astype(np.int64)
        found[f"{key}/arguments"] = padded[:, 1]
    if image.factors:
        found[f"{key}/colour factors"] = np.asarray(image.factors)
    return found | {f"{key}/pixels": image.pixels}


def _batch_arrays(key: str, batch: TrainingBatch, count: int) -> Arrays:
    found = {
        f"{key}/cutmix box": np.asarray(batch.box or (0, 0, 0, 0)),
        f"{key}/lam": np.asarray(batch.lam),
        f"{key}/mixed bytes": batch.mixed.numpy(),
        f"{key}/targets": batch.labels.numpy(),
    }
    for index, boxes in enumerate(batch.erased):
        padded = [*boxes, *[(-1, -1, -1, -1)] * (count - len(boxes))]
        found[f"{key}/image {index}/erased"] = np.asarray(padded)
    return found | {f"{key}/images": batch.images.numpy()}
