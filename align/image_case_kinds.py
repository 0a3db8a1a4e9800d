"""The kinds of case about image data and image training: plain records, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from align.case_kinds import ModelCase


@dataclass(frozen=True)
class DrawnImagesCase:
    """Training batches that both sides derive from the same uniform numbers.

    Attributes:
        options: of ``ImageTrainConfig`` that differ from its defaults; the reference has its own
            defaults and is told the same differences.
        epochs: one batch of each.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 4
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class ImageTrainerCase(ModelCase):
    """The image trainer as users run it, on a folder of pictures, against a plain PyTorch loop.

    Attributes:
        pictures: training pictures and validation pictures.
        batch_size: images of a step; both counts of pictures leave a remainder.
        smoothing: of the integer labels, which are not mixed.
        eval_metric: what selects the best checkpoint.
    """

    pictures: tuple[int, int] = (22, 10)
    batch_size: int = 4
    smoothing: float = 0.1
    eval_metric: str = "top1"
