"""Kinds of case for calls that the steps of a whole model do not make: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from align.case_kinds import ModelCase


@dataclass(frozen=True)
class PlainCallCase(ModelCase):
    """A model called as in a README, ``model(input_ids)`` or ``model(images)``: nothing else given.

    No mask, no token types and no taps are asked for; only the logits come back.
    """


@dataclass(frozen=True)
class FormulaCase:
    """A tensor function of ``functional.py`` that no model calls with these options.

    Attributes:
        function: its name on both sides.
        inputs: how many arrays (B, n, d) it takes; the last dimension grows by one each time.
        options: keyword arguments on both sides.
        fault: keyword arguments of the planted fault, instead of ``options``.
        masked: give a mask (B, n) too.
        symmetric: one input (B, d, d), positive semi-definite.
    """

    name: str
    function: str
    inputs: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    fault: Mapping[str, Any] | None = None
    masked: bool = False
    symmetric: bool = False
    steps: tuple[str, ...] = ("forward",)
    dtypes: tuple[str | None, ...] = ("float64",)
    quick: bool = True
