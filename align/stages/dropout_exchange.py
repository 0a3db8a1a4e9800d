"""The dropouts of both sides, one by one: where they run, with which p, mode and axes.

Both models run once forward in training mode with the shared masks, before anything else. Every
request for numbers is known then, and what differs is named here; the later stages compare values.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch
from align.frameworks.masks import Draw, Key, Masks
from align.judge import bounds
from align.judge.comparator import compare_arrays, compare_mappings
from align.pair.any_pair import AnyPair
from align.record.arrays import leaves, pair_leaves
from align.record.recording import run_model
from align.record.results import Comparison, Divergence, StepResult, Tolerance
from align.stages.stages import judged_control

_RULE = Tolerance(
    "relative", 1e-6, "p, mode and axes are settings: equal or wrong (PyTorch tells 1 - p)"
)
_SAME = 1e-3  # of the output: the masks agree; a mask that does not makes a difference near 1
Rows = dict[str, np.ndarray]


@dataclass
class _Pass:
    """One forward pass: its floating outputs, its requests and who computed it."""

    outputs: list[tuple[str, np.ndarray]]
    draws: dict[Key, Draw]
    stamp: Mapping[str, Any]


def exchanged(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Compare the dropouts of both sides and settle which of them are the same.

    Must run before the other stages of its precision: a dropout that stands in another layer of
    the Paddle side, or that counts its uniform numbers from the other end, is settled here.

    Args:
        pair: with ``plan.dropout == "exchange"``.

    Returns:
        StepResult of step "forward" named "... (dropout)", and what differs.

    Raises:
        ValueError: the plan does not exchange masks, or a side draws by chance what cannot be.
    """
    masks = pair.setup.masks
    if masks is None:
        raise ValueError("the stage 'dropout' needs dropout='exchange' in the plan")
    reference = _forward(pair, on_torch, pair.reference_model(pair.dtype, True), masks)
    ours = _settle(pair, masks, reference)
    agree = _agree(reference, ours)
    own, expected = _settings(ours.draws, reference.draws, masks)
    comparisons = _judge(own, expected)
    controls = [
        judged_control("a dropout too many", _judge({**own, "x": np.ones(4)}, expected), "")
    ]
    for name in list(expected)[:1]:
        wrong = {**own, name: own.get(name, expected[name]) * 1.1 + 0.01}
        controls.append(judged_control("p 10 % off", _judge(wrong, expected), name))
    result = StepResult(
        f"{pair.plan.name} (dropout)",
        "forward",
        pair.dtype,
        comparisons,
        controls,
        note=_note(masks, agree),
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )
    return result, _findings(pair, comparisons, reference.draws, ours.draws, agree)


def _forward(pair: AnyPair, side: Any, model: Any, masks: Masks) -> _Pass:
    dtype = pair.dtype
    with side.default_dtype(dtype), side.dropout_exchanged(side, masks, model, 0):
        output, _ = run_model(side, model, pair.plan.cast(dtype, dtype))
    found = leaves(output, side.is_tensor)
    if not found:
        raise ValueError(f"the {side.NAME} model returns no tensor")
    arrays = [(path, side.numpy(value)) for path, value in found]
    floats = [(path, a) for path, a in arrays if a.dtype.kind == "f"]
    return _Pass(floats, dict(masks.log[side.NAME]), side.stamp(found[0][1]))


def _settle(pair: AnyPair, masks: Masks, reference: _Pass) -> _Pass:
    """Our pass, with what is the same in another form taken for the same."""
    masks.partners, masks.turned, masks.flipped = {}, {}, set()
    ours = _forward(pair, on_paddle, pair.our_model(True), masks)
    masks.partners = _partners(reference.draws, ours.draws)
    masks.turned = _turned(reference.draws, ours.draws, masks.partners)
    if masks.turned or any(a != b for a, b in masks.partners.items()):
        ours = _forward(pair, on_paddle, pair.our_model(True), masks)
    loose = {
        own
        for own, key in masks.partners.items()
        if key is not None and None in (ours.draws[own].p, reference.draws[key].p)
    }
    if not loose or _agree(reference, ours):
        return ours
    masks.flipped = loose
    flipped = _forward(pair, on_paddle, pair.our_model(True), masks)
    if _agree(reference, flipped):
        return flipped
    masks.flipped = set()
    return ours


def _partners(reference: Mapping[Key, Draw], ours: Mapping[Key, Draw]) -> dict[Key, Key | None]:
    """Which of PyTorch's requests each of ours stands for.

    Requests of one call pair in order; when one side makes more of them, those of equal size and p
    pair first. What is left over pairs across layers, in order, when size and p are the same.
    """
    found: dict[Key, Key | None] = dict.fromkeys(ours)
    for place in dict.fromkeys(draw.place for draw in ours.values()):
        own = [draw for draw in ours.values() if draw.place == place]
        held = [draw for draw in reference.values() if draw.place == place]
        if len(own) == len(held):
            found.update({a.key: b.key for a, b in zip(own, held, strict=True)})
            continue
        signs = [[(draw.size, round(draw.p or 0.0, 6)) for draw in side] for side in (own, held)]
        for i, j, length in SequenceMatcher(None, *signs, autojunk=False).get_matching_blocks():
            found.update({own[i + k].key: held[j + k].key for k in range(length)})
    rest = [draw for key, draw in reference.items() if key not in found.values()]
    for key, draw in ours.items():
        fitting = [one for one in rest if one.size == draw.size and _near(one.p, draw.p)]
        if found[key] is None and fitting:
            found[key] = fitting[0].key
            rest.remove(fitting[0])
    for key, draw in ours.items():  # what is left in one call pairs in order, whatever differs
        here = [one for one in rest if one.place == draw.place]
        if found[key] is None and here:
            found[key] = here[0].key
            rest.remove(here[0])
    return found


def _near(a: float | None, b: float | None) -> bool:
    return a is None or b is None or abs(a - b) <= 1e-6


def _turned(
    reference: Mapping[Key, Draw], ours: Mapping[Key, Draw], partners: Mapping[Key, Key | None]
) -> dict[Key, tuple[int, ...]]:
    """Masks of the same axes in another order: the order of PyTorch's axes."""
    found = {}
    for own, key in partners.items():
        shape, theirs = ours[own].shape, () if key is None else reference[key].shape
        if shape == theirs or 1 in shape or sorted(shape) != sorted(theirs):
            continue
        orders = itertools.permutations(range(len(shape)))
        fitting = (order for order in orders if tuple(theirs[i] for i in order) == shape)
        found[own] = next(fitting)
    return found


def _agree(reference: _Pass, ours: _Pass) -> bool:
    """Whether the outputs are the same but for rounding."""
    pairs, left, own_left = pair_leaves(reference.outputs, ours.outputs)
    if left or own_left:
        return False
    return all(
        a.shape == b.shape
        and bool(np.abs(a - b).max(initial=0) <= _SAME * np.abs(b).max(initial=0))
        for _, b, a in pairs
    )


def _settings(
    ours: Mapping[Key, Draw], reference: Mapping[Key, Draw], masks: Masks
) -> tuple[Rows, Rows]:
    """Both sides' rows by name: p, whether kept elements are scaled, number of values, axes."""
    own: Rows = {}
    expected: Rows = {}
    back = {b: a for a, b in masks.partners.items()}
    for key, draw in reference.items():
        mine = ours.get(back.get(key, key)) if key in back else None
        known = mine is not None and draw.p is not None and mine.p is not None
        expected[_name(draw)] = np.asarray([draw.p if known else 0, 1, draw.size, 0], float)
        if mine is not None:
            other = _other_axes(mine, draw, masks)
            row = [mine.p if known else 0, not mine.mode, mine.size, other]
            own[_name(draw)] = np.asarray(row, float)
    for key, draw in ours.items():
        if masks.partners[key] is None:
            name = f"{_name(draw)} (Paddle)"
            own[name] = np.asarray([draw.p or 0, not draw.mode, draw.size, 0], float)
    return own, expected


def _other_axes(own: Draw, draw: Draw, masks: Masks) -> bool:
    """Whether the masks drop along other axes; heads may be folded into the batch."""
    if own.size != draw.size:
        return True
    same_rank = len(own.shape) == len(draw.shape)
    return same_rank and own.shape != draw.shape and own.key not in masks.turned


def _name(draw: Draw) -> str:
    number = "" if draw.number == 1 else f" number {draw.number}"
    return f"dropout{number} of {draw.place}"


def _judge(own: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> list[Comparison]:
    counts = np.asarray([len(own)]), np.asarray([len(expected)])
    found = [compare_arrays("(number of dropouts)", *counts, bounds.EXACT)]
    return found + (compare_mappings(own, expected, _RULE) if own or expected else [])


def _note(masks: Masks, agree: bool) -> str:
    count, theirs = len(masks.log["Paddle"]), len(masks.log["PyTorch"])
    parts = [f"{count} dropouts in Paddle, {theirs} in PyTorch"]
    if not count and not theirs:
        parts = ["neither side drops anything"]
    if agree:
        parts += [
            f"the dropout of {b[0]} stands in {a[0]} in Paddle and takes its numbers"
            for a, b in masks.partners.items()
            if b is not None and a[0] != b[0]
        ]
    if masks.flipped:
        places = ", ".join(sorted({place for place, _ in masks.flipped}))
        parts.append(f"uniform numbers count from the other end in {places}: the same chances")
    return "; ".join(parts)


def _findings(
    pair: AnyPair,
    comparisons: list[Comparison],
    reference: Mapping[Key, Draw],
    ours: Mapping[Key, Draw],
    agree: bool,
) -> list[Divergence]:
    """One entry for each dropout that differs, in execution order of the reference."""
    masks = pair.setup.masks
    back = {b: ours[a] for a, b in masks.partners.items() if b is not None}
    failed = {c.name: c.reason for c in comparisons if not c.passed}
    alone = [draw for key, draw in ours.items() if masks.partners[key] is None]
    found = []
    for draw in [*reference.values(), *alone]:
        own = back.get(draw.key)
        name = _name(draw)
        if draw in alone:
            cause, name = _one_sided(draw, "Paddle", pair), f"{name} (Paddle)"
        elif own is None:
            cause = _one_sided(draw, "PyTorch", pair)
        elif own.place != draw.place and not agree:
            cause = f"the dropout that PyTorch runs in {draw.place} runs in {own.place} in Paddle"
        else:
            cause = _difference(own, draw, masks)
        if not cause:
            continue
        place = (draw if own is None else own).place.partition("#")[0]
        reason = failed.get(name, "the outputs differ")
        code = pair.code(place)
        found.append(Divergence(name, place, "forward", pair.dtype, reason, cause, code))
    return found


def _one_sided(draw: Draw, side: str, pair: AnyPair) -> str:
    known = "" if draw.p is None else f" with p={draw.p:.6g}"
    name, again, _ = draw.place.partition("#")
    text = f"dropout in {name}{known} runs in {side} only"
    if again:
        more = "more" if side == "Paddle" else "less"
        return f"{text}: Paddle runs that layer once {more} than PyTorch"
    if side == "PyTorch":
        p = getattr(pair.layer(name)[0], "p", None)
        return text + (": Paddle's layer has p=0" if p == 0 else ": it is missing in Paddle")
    return text


def _difference(own: Draw, draw: Draw, masks: Masks) -> str:
    """What is set differently in a dropout that both sides run."""
    if own.size > draw.size and own.shape[-1:] == draw.shape[-1:] and len(draw.shape) == 2:
        return (
            f"dropout in {own.place}: Paddle drops padded sequences {own.shape}, PyTorch packed "
            f"ones {draw.shape}: these masks cannot be exchanged: leave dropout='exchange' out"
        )
    if _other_axes(own, draw, masks):
        return (
            f"dropout in {own.place} drops along other axes: Paddle's mask has the shape "
            f"{own.shape}, PyTorch's {draw.shape}"
        )
    if not _near(own.p, draw.p):
        return (
            f"dropout in {own.place}: Paddle drops with p={own.p:.6g}, PyTorch with p={draw.p:.6g}"
        )
    if own.mode != draw.mode:
        return (
            f"dropout in {own.place}: mode={own.mode!r} leaves the kept elements as they are; "
            "PyTorch divides them by 1 - p: use mode='upscale_in_train'"
        )
    return ""
