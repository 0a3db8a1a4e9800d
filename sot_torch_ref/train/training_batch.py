"""The published collate step of training, derived from uniform draws: mix, normalise, erase.

Legend: B images, S pixels of a side, K classes.

Source: specs A.9; timm 0.3.4, FastCollateMixup and PrefetchLoader.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from sot_torch_ref.train import mixup, random_erasing
from sot_torch_ref.train.image_transforms import IMAGENET_MEAN, IMAGENET_STD
from sot_torch_ref.train.random_erasing import ErasedBox
from sot_torch_ref.train.uniform_draws import UniformDraws


@dataclass(frozen=True)
class BatchRecipe:
    """The options; the defaults are the published ones.

    Attributes:
        mixup, cutmix: alpha of each kind, 0 for none; without both the labels stay integers.
        mix_prob: Probability that a batch is mixed.
        switch_prob: Probability of CutMix where both are on.
        off_epoch: First epoch without mixing, 0 for never; the targets stay smoothed.
        smoothing: Label smoothing, folded into the soft targets.
        erase_prob, erase_mode, erase_count: Of random erasing.
        mean, std: Of the channels, for values in [0, 1].
    """

    mixup: float = 0.8
    cutmix: float = 1.0
    mix_prob: float = 1.0
    switch_prob: float = 0.5
    off_epoch: int = 0
    smoothing: float = 0.1
    erase_prob: float = 0.25
    erase_mode: str = "pixel"
    erase_count: int = 1
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD


@dataclass
class TrainingBatch:
    """What became of the images of a batch.

    Attributes:
        images: (B, 3, S, S), float32.
        labels: (B,) integers, or soft targets (B, K) of a recipe that mixes.
        lam: Share of an image's own label.
        box: Part that comes from the partner, None without CutMix.
        mixed: (B, 3, S, S) bytes before the normalisation.
        erased: Rectangles of each image.
    """

    images: torch.Tensor
    labels: torch.Tensor
    lam: float = 1.0
    box: mixup.Box | None = None
    mixed: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    erased: list[list[ErasedBox]] = field(default_factory=list)


def training_batch(
    pixels: Sequence[np.ndarray],
    labels: Sequence[int],
    num_classes: int,
    recipe: BatchRecipe,
    mix_draws: UniformDraws,
    erase_draws: Sequence[UniformDraws],
    epoch: int = 0,
) -> TrainingBatch:
    """Make a batch as the published training loop gets it.

    Args:
        pixels: uint8 (S, S, 3), B of them.
        labels: B integers.
        num_classes: K.
        recipe: The options.
        mix_draws: Of the batch.
        erase_draws: One stream for each image.
        epoch: From 0.
    """
    raw = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image in pixels])
    numbers = torch.tensor(labels, dtype=torch.int64)
    lam, box = 1.0, None
    if recipe.mixup or recipe.cutmix:
        if not recipe.off_epoch or epoch < recipe.off_epoch:
            lam, box = _drawn_mix(mix_draws, raw, recipe)
        raw = mixup.mixup_batch(raw, lam) if box is None else mixup.cutmix_batch(raw, box)
        numbers = mixup.mixed_targets(numbers, num_classes, lam, recipe.smoothing)
    images, erased = normalized(raw, recipe.mean, recipe.std), []
    for place, draws in enumerate(erase_draws):
        chosen = random_erasing.drawn_boxes(
            draws,
            tuple(images.shape[1:]),
            prob=recipe.erase_prob,
            mode=recipe.erase_mode,
            count=recipe.erase_count,
        )
        for where, noise in chosen:
            images[place] = random_erasing.erase(images[place], where, noise.to(torch.float32))
        erased.append([where for where, _ in chosen])
    return TrainingBatch(images, numbers, lam, box, raw, erased)


def _drawn_mix(
    draws: UniformDraws, images: torch.Tensor, recipe: BatchRecipe
) -> tuple[float, mixup.Box | None]:
    return mixup.drawn_mix(
        draws,
        *images.shape[2:],
        mixup=recipe.mixup,
        cutmix=recipe.cutmix,
        prob=recipe.mix_prob,
        switch_prob=recipe.switch_prob,
    )


def normalized(
    images: torch.Tensor, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> torch.Tensor:
    """(x - 255 mean) / (255 std) of bytes (B, 3, S, S), in float32: the loader's arithmetic."""
    center, spread = (
        torch.tensor([255.0 * value for value in values], dtype=torch.float32).reshape(3, 1, 1)
        for values in (mean, std)
    )
    return (images.to(torch.float32) - center) / spread
