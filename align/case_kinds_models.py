"""Further kinds of case about models: what is resized, built, counted or drawn. No logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from align.case_kinds import ModelCase


@dataclass(frozen=True)
class ResizedCase(ModelCase):
    """Weights of a model of one size, converted for a model of another size, and its logits.

    Attributes:
        source: options in which the model of the file differs.
        sizes: options of the conversion.
    """

    steps: tuple[str, ...] = ("weights",)
    source: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
