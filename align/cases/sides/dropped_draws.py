"""What a forward pass dropped by chance, layer by layer, recorded on either side.

A draw is one call of a dropout function, or of a layer of stochastic depth, that changed its input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
import torch

from sot_paddle.backbones.layers import DropPath
from sot_torch_ref.backbones.layers import DropPath as ReferenceDropPath


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
def _told(functional: Any, draws: Draws) -> Iterator[None]:
    """Let ``functional.dropout`` tell what it does."""
    original: Callable = functional.dropout

    def dropout(x: Any, *args: Any, **kwargs: Any) -> Any:
        before = x.detach().numpy().copy()
        output = original(x, *args, **kwargs)
        draws.note(before, output.detach().numpy())
        return output

    functional.dropout = dropout
    try:
        yield
    finally:
        functional.dropout = original


@contextlib.contextmanager
def drawn_by_paddle(model: paddle.nn.Layer, seed: int) -> Iterator[Draws]:
    """Record what a Paddle model draws within the block."""
    draws, handles = Draws(), []

    def leave(layer: Any, inputs: tuple, output: Any) -> None:
        if isinstance(layer, DropPath):
            draws.note(inputs[0].detach().numpy(), output.detach().numpy())
        draws.inside.pop()

    for name, layer in model.named_sublayers():
        enter = lambda _layer, _inputs, name=name: draws.inside.append(name)  # noqa: E731
        handles += [layer.register_forward_pre_hook(enter), layer.register_forward_post_hook(leave)]
    paddle.seed(seed)
    try:
        with _told(paddle.nn.functional, draws):
            yield draws
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def drawn_by_torch(model: torch.nn.Module, seed: int) -> Iterator[Draws]:
    """Record what a PyTorch model draws within the block."""
    draws, handles = Draws(), []

    def leave(module: Any, inputs: tuple, output: Any) -> None:
        if isinstance(module, ReferenceDropPath):
            draws.note(inputs[0].detach().numpy(), output.detach().numpy())
        draws.inside.pop()

    for name, module in model.named_modules():
        enter = lambda _module, _inputs, name=name: draws.inside.append(name)  # noqa: E731
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            with _told(torch.nn.functional, draws):
                yield draws
        finally:
            for handle in handles:
                handle.remove()
