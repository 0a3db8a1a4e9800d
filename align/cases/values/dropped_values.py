"""Statistics of what dropout and stochastic depth drop in a whole model, ours and the reference's.

Each side draws from its own generator, so shares are compared, not masks: the share that is
dropped, the share on which neighbouring samples agree (independent draws agree on p^2 + (1 - p)^2
of it). Both are binomial: two of n draws differ by more than 6 standard deviations of their
difference with a probability of 2e-9; with n of at least 1,000 the tail of the binomial is heavier
than the normal's by less than ten times. A case compares fewer than 100 shares: below 2e-6.
The seeds are fixed, so a pass stays one on every machine.
Exact are the layers that draw, the scale of what is kept, and whether a mask is shared between or
within samples. In evaluation nothing may be drawn.

A draw is one call of a dropout function, or of a layer of stochastic depth, that changed its input.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.model_pair import ModelPair
from align.cases.sides import paddle_side
from align.cases.tensor_functions import called
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from align.record.recording import ROOT
from align.record.results import Tolerance
from sot_paddle.backbones.layers import DropPath
from sot_torch_ref.backbones.layers import DropPath as ReferenceDropPath

_ENCODER_MODULES: tuple[tuple[str, str], ...] = (
    (r"(.*)\.layer\.(\d+)\.attention\.self(\.dropout)?", r"\1.layers.\2.self_attn"),
    (r"(.*)\.layer\.(\d+)\.attention\.output\.dropout", r"\1.layers.\2.dropout1"),
    (r"(.*)\.layer\.(\d+)\.intermediate", r"\1.layers.\2.dropout"),
    (r"(.*)\.layer\.(\d+)\.output\.dropout", r"\1.layers.\2.dropout2"),
    (r"(.*)\.layer\.(\d+)", r"\1.layers.\2"),
    (r"gpt\.h\.(\d+)\.attn", r"gpt.layers.\1.attn"),
    (r"gpt\.h\.(\d+)\.attn\.attn_dropout", r"gpt.layers.\1.attn.attn_drop"),
    (r"gpt\.h\.(\d+)\.attn\.resid_dropout", r"gpt.layers.\1.attn.proj_drop"),
    (r"gpt\.h\.(\d+)\.mlp", r"gpt.layers.\1.mlp"),
    (r"gpt\.h\.(\d+)\.mlp\.dropout", r"gpt.layers.\1.mlp.drop"),
)
"""Modules of transformers' encoder that have no tensor of their own, in paddlenlp's names."""

_SIGMAS, _SEED = 6.0, 23
_EVALUATION = "(draws in evaluation)"
_SCALE = Tolerance("scaled", 1e-6, "1 / (1 - p), whose p a kernel may hold in float32")
_EXACT = Tolerance("exact", 0.0, "which layers draw, and what a mask is shared by")
_SHARED = ("(one mask for all samples)", "(one value for a whole sample)")


def dropped(setting: Setting) -> BothSides:
    """What both models drop in training mode and in evaluation: where, how much, what together."""
    pair = setting.pair
    counts: list[list[int]] = []
    for train in (False, True):
        passes = [_passed(pair, side, train) for side in (on_paddle, on_torch)]
        counts.append([len(draws.found) for draws, _ in passes])
    (our_draws, our_stamp), (their_draws, stamp) = passes
    found = our_draws.found, _renamed(their_draws)
    ours, reference = (
        {_EVALUATION: np.asarray(count), **_statistics(draws)}
        for draws, count in zip(found, counts[0], strict=True)
    )
    rules = _rules(found[1])
    return BothSides(
        ours,
        reference,
        _faults(ours),
        next(_layers(ours)),
        rule=lambda name: rules.get(name, _EXACT),
        note=f"shares within {_SIGMAS:g} standard deviations",
        stamps=stamps(our_stamp, stamp),
    )


def _passed(pair: ModelPair, side: ModuleType, train: bool) -> tuple[Draws, Mapping[str, Any]]:
    """The draws of one side's forward pass."""
    ours = side is on_paddle
    model = pair.model if ours else pair.fresh_reference()
    model.train() if train else model.eval()
    kept = paddle_side.buffers_kept(model) if ours else contextlib.nullcontext()
    with drawn(side, model, _SEED) as draws, kept:
        made = called(side, model, pair.batch, pair.dtype)
    return draws, side.stamp(made)


def _renamed(draws: Draws) -> dict[str, DroppedDraw]:
    """The reference's draws under our layers' names."""
    found = {}
    for name, draw in draws.found.items():
        layer, space, count = name.partition(" ")
        found[renamed(layer) + space + count] = draw
    return found


def _statistics(draws: dict[str, DroppedDraw]) -> Arrays:
    """What is compared of each draw."""
    found: Arrays = {}
    for name, draw in draws.items():
        for axis, what in enumerate(_SHARED):
            found[f"{name} {what}"] = np.asarray(int(draw.shared(axis)))
        kept, agreeing = _shares(draw)
        found[f"{name} dropped"] = np.asarray(1.0 - kept.mean())
        found[f"{name} agreeing"] = np.asarray(agreeing.mean())
        found[f"{name} scale"] = np.asarray(draw.scales)
    return found


def _shares(draw: DroppedDraw) -> tuple[np.ndarray, np.ndarray]:
    """What was kept of each unit, and whether units of neighbouring samples fared alike; bool."""
    draw = draw.of_samples() if draw.shared(1) else draw
    even, odd = slice(0, len(draw.kept) // 2 * 2, 2), slice(1, None, 2)
    both = draw.known[even] & draw.known[odd]
    return draw.kept[draw.known], (draw.kept[even] == draw.kept[odd])[both]


def _rules(draws: dict[str, DroppedDraw]) -> dict[str, Tolerance]:
    """How far shares of as many draws as the reference's may be apart, and scales."""
    rules = {}
    for name, draw in draws.items():
        kept, agreeing = _shares(draw)
        rate = 1.0 - kept.mean()
        for what, share, count in (
            ("dropped", rate, kept.size),
            ("agreeing", rate**2 + (1.0 - rate) ** 2, agreeing.size),
        ):
            limit = _SIGMAS * math.sqrt(2.0 * share * (1.0 - share) / count)
            why = f"{_SIGMAS:g} standard deviations of the difference of two shares of {count}"
            rules[f"{name} {what}"] = Tolerance("absolute", limit, why)
        rules[f"{name} scale"] = _SCALE
    return rules


def _layers(arrays: Arrays) -> Iterator[str]:
    return (name.removesuffix(" dropped") for name in arrays if name.endswith(" dropped"))


def _faults(ours: Arrays) -> dict[str, Arrays]:
    name = next(_layers(ours))
    dropped, scale, shared = f"{name} dropped", f"{name} scale", f"{name} {_SHARED[1]}"
    return {
        "dropped twice as often": {**ours, dropped: 2.0 * ours[dropped]},
        "not scaled": {**ours, scale: np.ones(2)},
        "the same mask for all samples": {**ours, f"{name} {_SHARED[0]}": np.asarray(1)},
        "shared within a sample, or not": {**ours, shared: 1 - ours[shared]},
        "active in evaluation": {**ours, _EVALUATION: ours[_EVALUATION] + 1},
        "a layer that draws no more": {key: ours[key] for key in ours if key != dropped},
    }


_FUNCTIONAL = {on_paddle.NAME: paddle.nn.functional, on_torch.NAME: torch.nn.functional}


def renamed(name: str) -> str:
    """A module of transformers' encoder in paddlenlp's names; other names as they are."""
    for pattern, replacement in _ENCODER_MODULES:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


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
    draws = Draws()

    def leave(layer: Any, inputs: tuple, _options: dict, output: Any) -> None:
        if isinstance(layer, DropPath | ReferenceDropPath):
            draws.note(side.numpy(inputs[0]), side.numpy(output))
        draws.inside.pop()

    functional = _FUNCTIONAL[side.NAME]
    original: Callable = functional.dropout

    def dropout(x: Any, *args: Any, **kwargs: Any) -> Any:
        before = side.numpy(x)
        output = original(x, *args, **kwargs)
        draws.note(before, side.numpy(output))
        return output

    with contextlib.ExitStack() as stack:
        for name, layer in side.modules(model).items():
            if name != ROOT:
                enter = lambda *_, name=name: draws.inside.append(name)  # noqa: E731
                stack.enter_context(side.hook(layer, enter, leave))
        stack.enter_context(torch.random.fork_rng())
        stack.enter_context(mock.patch.object(functional, "dropout", dropout))
        torch.manual_seed(seed)
        paddle.seed(seed)
        yield draws
