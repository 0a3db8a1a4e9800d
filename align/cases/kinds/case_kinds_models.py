"""Further kinds of case about models: what is resized, built, counted or drawn. No logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from align.cases.kinds.case_kinds import ModelCase


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


@dataclass(frozen=True)
class StatisticsCase(ModelCase):
    """Running means and variances after one forward pass in training mode, in float32."""

    steps: tuple[str, ...] = ("forward",)
    dtypes: tuple[str | None, ...] = ("float32",)


@dataclass(frozen=True)
class ZeroMatrixCase:
    """A power norm and its gradient at matrices of zeros, nearly zeros, and of rank one.

    Attributes:
        norm: ``svpn``, ``mpn`` or ``epn``.
        on_zero: rule for a matrix of zeros, ``nan`` (as published) or ``zero``.
    """

    name: str
    norm: str
    on_zero: str = "nan"
    steps: tuple[str, ...] = ("backward",)
    dtypes: tuple[str | None, ...] = ("float64",)
    quick: bool = True


@dataclass(frozen=True)
class PaddingCase:
    """Ragged rows of ids padded into batches.

    Attributes:
        pad: ``max_length`` or ``longest``.
        pad_id: token id of padding.
        labels: ``int64``, ``float32``, or None for rows without labels.
    """

    name: str
    pad: str
    pad_id: int
    labels: str | None
    steps: tuple[str, ...] = ("data",)
    dtypes: tuple[str | None, ...] = (None,)
    quick: bool = True


@dataclass(frozen=True)
class DrawnCase(ModelCase):
    """What a model drops by chance: where, how much, how it scales, and what it drops together."""

    dtypes: tuple[str | None, ...] = ("float64",)
    steps: tuple[str, ...] = ("forward",)
