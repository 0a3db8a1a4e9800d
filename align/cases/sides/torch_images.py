"""The PyTorch side of image data: what a run is fed from a folder, by the reference's own code."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sot_torch_ref  # noqa: F401  isort: skip (torchvision beside a CPU torch)
from align.record.arrays import Arrays
from sot_torch_ref.train.image_transforms import eval_transform
from sot_torch_ref.train.training_batch import BatchRecipe, normalized
from sot_torch_ref.train.training_image import TrainingRecipe, transform_image
from sot_torch_ref.train.uniform_draws import UniformDraws

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
