"""Kinds of case for calls that the steps of a whole model do not make: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from align.cases.kinds.case_kinds import ModelCase


@dataclass(frozen=True)
class PlainCallCase(ModelCase):
    """A model called as in a README, ``model(input_ids)`` or ``model(images)``: nothing else given.

    No mask, no token types and no taps are asked for; only the logits come back.
    """


@dataclass(frozen=True)
class PublishedCase:
    """A layer built from the original's dictionary against the reference built from its options.

    Attributes:
        layer: class of ``sot_paddle.published``.
        dictionary: what the original's README gives it.
        options: the reference's own options of the same layer.
        fault: a dictionary that takes the same weights and computes something else, None for none.
    """

    name: str
    layer: str
    dictionary: Mapping[str, Any]
    options: Mapping[str, Any]
    fault: Mapping[str, Any] | None = None
    steps: tuple[str, ...] = ("forward",)
    dtypes: tuple[str | None, ...] = ("float64",)
    quick: bool = True
