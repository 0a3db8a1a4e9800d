"""The kinds of case about image data and image training: plain records, no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
