"""Statistics of what dropout and stochastic depth drop in a whole model, ours and the reference's.

Each side draws from its own generator, so shares are compared, not masks: the share that is
dropped, the share on which neighbouring samples agree (independent draws agree on p^2 + (1 - p)^2
of it). Both are binomial: two of n draws differ by more than 6 standard deviations of their
difference with a probability of 2e-9; with n of at least 1,000 the tail of the binomial is heavier
than the normal's by less than ten times. A case compares fewer than 100 shares: below 2e-6.
The seeds are fixed, so a pass stays one on every machine.
Exact are the layers that draw, the scale of what is kept, and whether a mask is shared between or
within samples. In evaluation nothing may be drawn.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.model_pair import ModelPair
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.dropped_draws import Draws, DroppedDraw, drawn
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from align.record.tolerance import Tolerance

_SIGMAS, _SEED = 6.0, 23
_EVALUATION = "(draws in evaluation)"
_SCALE = Tolerance("scaled", 1e-6, "1 / (1 - p), whose p a kernel may hold in float32")
_EXACT = Tolerance("exact", 0.0, "which layers draw, and what a mask is shared by")
_SHARED = ("(one mask for all samples)", "(one value for a whole sample)")
_TEXT_NAMES = (  # transformers' layers that draw -> paddlenlp's
    (
        r"(bert|roberta)\.encoder\.layer\.(\d+)\.attention\.self(\.dropout)?$",
        r"\1.encoder.layers.\2.self_attn",
    ),
    (
        r"(bert|roberta)\.encoder\.layer\.(\d+)\.attention\.output\.dropout$",
        r"\1.encoder.layers.\2.dropout1",
    ),
    (r"(bert|roberta)\.encoder\.layer\.(\d+)\.output\.dropout$", r"\1.encoder.layers.\2.dropout2"),
    (r"gpt\.h\.(\d+)\.attn\.attn_dropout$", r"gpt.layers.\1.attn.attn_drop"),
    (r"gpt\.h\.(\d+)\.attn\.resid_dropout$", r"gpt.layers.\1.attn.proj_drop"),
    (r"gpt\.h\.(\d+)\.mlp\.dropout$", r"gpt.layers.\1.mlp.drop"),
)


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
    run = paddle_side.forward if ours else torch_side.forward
    with drawn(side, model, _SEED) as draws, kept:
        _, stamp = run(model, pair.batch, pair.dtype)
    return draws, stamp


def _renamed(draws: Draws) -> dict[str, DroppedDraw]:
    """The reference's draws under our layers' names."""
    found = {}
    for name, draw in draws.found.items():
        layer, space, count = name.partition(" ")
        for pattern, ours in _TEXT_NAMES:
            layer = re.sub(pattern, ours, layer)
        found[layer + space + count] = draw
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
