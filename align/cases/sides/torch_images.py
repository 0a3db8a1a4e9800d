"""The PyTorch side of image data: training batches from a folder, by the reference's own code."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sot_torch_ref  # noqa: F401  isort: skip (torchvision beside a CPU torch)
from align.record.arrays import Arrays
from sot_torch_ref.train.image_transforms import eval_transform
from sot_torch_ref.train.training_batch import (
    BatchRecipe,
    TrainingBatch,
    normalized,
    training_batch,
)
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
    "mixup_off_epoch": "off_epoch",
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
            epoch,
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


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of a run's samples in an epoch: NumPy's PCG64 seeded with (seed, epoch, 0)."""
    return np.random.Generator(np.random.PCG64([seed, epoch, 0])).permutation(count)


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, processes: int = 1
) -> np.ndarray:
    """The images of an epoch, (steps, processes, B): whole batches in contiguous parts."""
    whole = batch_size * processes
    order = epoch_order(count, seed, epoch)[: count // whole * whole]
    return order.reshape(-1, processes, batch_size)


def fed_keys(
    count: int, batch_size: int, seed: int, *, processes: int, epochs: int
) -> dict[str, np.ndarray]:
    """The images each process asks for: epochs in a row, then one resumed.

    Returns:
        ``process 1/epoch 0`` -> step and index of each image, (n, 2); ``.../resumed`` from the
        second batch on.
    """
    found = {}
    for rank in range(processes):
        passes = [
            epoch_batches(count, batch_size, seed, epoch, processes)[:, rank]
            for epoch in range(epochs)
        ]
        names = [f"epoch {epoch}" for epoch in range(epochs)]
        for name, batches in zip([*names, "resumed"], [*passes, passes[0][1:]], strict=True):
            pairs = [(step, at) for step, batch in enumerate(batches) for at in batch]
            found[f"process {rank}/{name}"] = np.array(pairs)
    return found


def fed_batches(
    folder: Path, options: Mapping[str, Any], epochs: int
) -> tuple[np.ndarray, list[Arrays]]:
    """The batches of a whole run of one process without augmentation or mixing.

    Returns:
        Epoch and index of every image, (n, 2); images (B, 3, S, S) of the run's dtype and integer
        labels of each step.
    """
    from torchvision.datasets import ImageFolder

    source = ImageFolder(str(folder / "train"))
    image_recipe, batch_recipe = recipes(options)
    pixels = [transform_image(picture, UniformDraws([]), image_recipe) for picture, _ in source]
    count, size = len(source), options["batch_size"]
    batches, asked = [], []
    for epoch in range(epochs):
        for (places,) in epoch_batches(count, size, options["seed"], epoch):
            asked += [(epoch, at) for at in places]
            raw = torch.stack([torch.from_numpy(pixels[at].pixels) for at in places])
            images = normalized(raw.permute(0, 3, 1, 2), batch_recipe.mean, batch_recipe.std)
            labels = np.array([source.targets[at] for at in places])
            batches.append({"images": images.numpy().astype(options["dtype"]), "labels": labels})
    return np.array(asked), batches


def evaluation_batch(folder: Path, options: Mapping[str, Any]) -> Arrays:
    """All validation images of a folder as evaluation sees them, their labels and names."""
    from torchvision.datasets import ImageFolder

    source = ImageFolder(str(folder / "val"))
    given = {name: options[name] for name in ("crop_pct", "mean", "std") if name in options}
    transform = eval_transform(options["img_size"], **given)
    images = np.stack([transform(picture) for picture, _ in source])
    names = [str(Path(file)) for file, _ in source.samples]
    return {
        "images": images.astype(options["dtype"]),
        "labels": np.array(source.targets),
        "names": text_numbers(names),
    }


def text_numbers(texts: Iterable[str]) -> np.ndarray:
    """A number for each text, equal for equal ones."""
    return np.array([zlib.crc32(text.encode()) for text in texts])
