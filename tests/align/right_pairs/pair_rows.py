"""What a row of the table of layer pairs holds, and how its options are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import torch

Shape = tuple[int, ...]
ROWS, TOKENS, IMAGES, VOLUMES = 2, 3, 4, 5
"""Kinds of input by their number of axes: (B, C), (B, N, C), (B, C, H, W), (B, C, D, H, W)."""
ANY = (ROWS, TOKENS, IMAGES)
IDS = 0
"""Integers (B, N), what an embedding takes."""


class Draws:
    """Draws from one seeded generator."""

    def __init__(self, seed: Sequence[int]) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, *values: Any) -> Any:
        """One of some values."""
        return values[int(self.rng.integers(len(values)))]

    def log(self, low: int, high: int) -> int:
        """An integer from low to high, log-uniform."""
        return int(round(float(np.exp(self.rng.uniform(np.log(low), np.log(high))))))

    def width(self, multiple: int = 1) -> int:
        """A number of channels, at most 1,024, log-uniform; half of them a power of two."""
        width = self.log(1, max(1, 1024 // multiple))
        if self.chance(0.5):
            width = 2 ** int(round(np.log2(width)))
        return width * multiple

    def divisor(self, number: int, most: int = 8) -> int:
        """A divisor of a number."""
        return self.of(*(k for k in range(1, most + 1) if number % k == 0))

    def chance(self, share: float) -> bool:
        """Whether something of this probability happens."""
        return bool(self.rng.random() < share)


@dataclass(frozen=True)
class Wrong:
    """Another value of one option, on Paddle's side alone.

    Attributes:
        value: it, or a function of (shape, options).
        words: one of which stands in a cause that names the option.
    """

    value: Any
    words: tuple[str, ...]

    def of(self, shape: Shape, options: SimpleNamespace) -> Any:
        """The value for a layer as it was drawn."""
        return self.value(shape, options) if callable(self.value) else self.value


@dataclass(frozen=True)
class Row:
    """A layer of PyTorch and the layer of Paddle that ports it.

    Attributes:
        name: of the layer.
        takes: numbers of axes of its input.
        torch: (shape, options) -> module, or a function of a tensor.
        paddle: likewise.
        draw: (draws, shape) -> options; both sides are built from them.
        wrong: option -> another value that is wrong on Paddle's side.
        fits: (shape) -> whether the layer takes this input.
        ties: at equal values, or at 0, each framework has a gradient of its own: no integers.
    """

    name: str
    takes: tuple[int, ...]
    torch: Callable[[Shape, SimpleNamespace], Any]
    paddle: Callable[[Shape, SimpleNamespace], Any]
    draw: Callable[[Draws, Shape], Mapping[str, Any]] = lambda d, s: {}
    wrong: Mapping[str, Wrong] = field(default_factory=dict)
    fits: Callable[[Shape], bool] = lambda s: True
    ties: bool = False


def draw_axis(d: Draws, s: Shape) -> dict[str, int]:
    """The last axis or the second one."""
    return {"axis": d.of(-1, 1)}


WRONG_AXIS = {"axis": Wrong(0, ("axis",))}


def alike(name: str, takes: tuple[int, ...], build: Callable[..., Any], *more: Any, **named: Any):
    """A row whose sides are both made by ``build`` of (framework, shape, options)."""
    return Row(
        name,
        takes,
        lambda s, o: build(torch, s, o),
        lambda s, o: build(paddle, s, o),
        *more,
        **named,
    )


def call(name: str, takes: tuple[int, ...], function: Callable[..., Any], *more: Any, **named: Any):
    """A row of a function of (framework, tensor, options) that both frameworks call alike."""
    return alike(name, takes, lambda f, s, o: lambda x: function(f, x, o), *more, **named)


def by_dims(framework: Any, name: str, dims: int, end: str = "") -> type:
    """The layer for so many dimensions: ``Conv2d`` of PyTorch, ``Conv2D`` of Paddle."""
    letter = "d" if framework is torch else "D"
    end = "" if framework is torch else end
    return getattr(framework.nn, f"{name}{dims}{letter}{end}")
