"""A kind of case: one pure function of both sides' ``functional`` module, value and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FunctionCase:
    """A function of tensors that has the same name on both sides.

    Attributes:
        name: unique.
        function: its name.
        shape: of the random input, (B, N, d); of a second one the last dimension is one larger.
        mistaken_for: (function, keywords) of the Paddle side that a control computes instead.
        options: keywords on both sides.
        inputs: how many tensors it takes; the gradient is that of the first.
        valid: rows of each sample that the mask leaves, () for no mask.
        symmetric: take x^T x, which is symmetric and positive semi-definite.
    """

    name: str
    function: str
    shape: tuple[int, ...]
    mistaken_for: tuple[str, Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: int = 1
    valid: tuple[int, ...] = ()
    symmetric: bool = False
    steps: tuple[str, ...] = ("forward", "backward")
    dtypes: tuple[str | None, ...] = ("float64",)
    quick: bool = True
