"""What a forward pass dropped by chance, layer by layer, recorded on either side.

A draw is one call of a dropout function, or of a layer of stochastic depth, that changed its input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch

from align.frameworks import on_paddle, on_torch
from align.record.recording import ROOT
from sot_paddle.backbones.layers import DropPath
from sot_torch_ref.backbones.layers import DropPath as ReferenceDropPath

_FUNCTIONAL = {on_paddle.NAME: paddle.nn.functional, on_torch.NAME: torch.nn.functional}


@dataclass(frozen=True)
class DroppedDraw:
    """One draw.

    Attributes:
        kept: (B, units) bool; B is what stands on the first axis (samples, or samples and heads).
        known: the same shape; an input of 0 does not show whether it was kept.
        scales: smallest and largest factor on what was kept, 0 where nothing was.
    """

    kept: np.ndarray
    known: np.ndarray
    scales: tuple[float, float]

    def shared(self, axis: int) -> bool:
        """Whether one value holds along an axis, for every index of the other one."""
        some_kept = (self.kept & self.known).any(axis=axis)
        some_dropped = (~self.kept & self.known).any(axis=axis)
        return not (some_kept & some_dropped).any()

    def of_samples(self) -> DroppedDraw:
        """One unit for each sample."""
        known = self.known.any(axis=1, keepdims=True)
        return DroppedDraw((self.kept & self.known).any(axis=1, keepdims=True), known, self.scales)


@dataclass
class Draws:
    """The draws of a pass by the layer that drew; a layer's second one is named ``layer (2)``."""

    found: dict[str, DroppedDraw] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)

    def note(self, before: np.ndarray, after: np.ndarray) -> None:
        """Keep a draw under the name of the layer that makes it."""
        if np.array_equal(before, after):
            return
        layer = self.inside[-1] if self.inside else "(the model)"
        count = 1 + sum(name.partition(" ")[0] == layer for name in self.found)
        before, after = (array.reshape(len(array), -1) for array in (before, after))
        kept = after != 0.0
        scales = after[kept] / before[kept] if kept.any() else np.zeros(1)
        name = layer if count == 1 else f"{layer} ({count})"
        self.found[name] = DroppedDraw(
            kept, before != 0.0, (float(scales.min()), float(scales.max()))
        )


@contextlib.contextmanager
def drawn(side: ModuleType, model: Any, seed: int) -> Iterator[Draws]:
    """Record what a model draws within the block.

    Args:
        side: `align.frameworks.on_paddle` or `on_torch`, whose model it is.
        model: in the mode in which it is to be run.
        seed: of its generator; PyTorch's is put back.
    """
    draws, handles = Draws(), []

    def leave(layer: Any, inputs: tuple, _options: dict, output: Any) -> None:
        if isinstance(layer, DropPath | ReferenceDropPath):
            draws.note(side.numpy(inputs[0]), side.numpy(output))
        draws.inside.pop()

    for name, layer in side.modules(model).items():
        if name != ROOT:
            enter = lambda *_, name=name: draws.inside.append(name)  # noqa: E731
            handles += side.hook(layer, enter, leave)
    functional = _FUNCTIONAL[side.NAME]
    original: Callable = functional.dropout

    def dropout(x: Any, *args: Any, **kwargs: Any) -> Any:
        before = side.numpy(x)
        output = original(x, *args, **kwargs)
        draws.note(before, side.numpy(output))
        return output

    with torch.random.fork_rng(), mock.patch.object(functional, "dropout", dropout):
        torch.manual_seed(seed)
        paddle.seed(seed)
        try:
            yield draws
        finally:
            for remove in handles:
                remove()
