"""The dropouts of both sides, one by one: where they run, with which p, mode and axes.

Both models run once forward in training mode and drop nothing; the later stages compare values,
without dropout as well. A draw by chance that is no dropout function is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch
from align.frameworks.live_models import UPSCALED, DropoutCall, dropouts_seen
from align.judge import bounds
from align.judge.comparator import compare_arrays, compare_mappings
from align.pair.any_pair import AnyPair
from align.pair.side import kept, untrained
from align.record.arrays import leaves
from align.record.recording import run_model
from align.record.results import Comparison, Divergence, StepResult, Tolerance
from align.stages.stages import judged_control, step_result

_RULE = Tolerance("relative", 1e-6, "p, mode and axes are settings: equal or wrong")
Rows = dict[str, np.ndarray]
Partners = dict[DropoutCall, DropoutCall]
"""PyTorch's call -> Paddle's."""


def dropout_calls(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Compare the dropout calls of both sides in training mode.

    Returns:
        StepResult of step "forward" named "... (dropout)", and what differs.
    """
    to_paddle = pair.setup.modules.to_paddle
    paddle_names = {name: name for name in to_paddle.values()}
    torch_calls, torch_stamp = _calls(
        pair, on_torch, pair.reference_model(pair.dtype, True), to_paddle
    )
    paddle_calls, paddle_stamp = _calls(pair, on_paddle, pair.our_model(True), paddle_names)
    partners = _partners(torch_calls, paddle_calls)
    alone = [call for call in paddle_calls if call not in partners.values()]
    expected = {_name(call): np.asarray([call.p, 1, 1]) for call in torch_calls}
    actual = {_name(a): _settings(a, b) for a, b in partners.items()}
    actual |= {f"{_name(call)} (Paddle)": np.asarray([call.p, 1, 1]) for call in alone}
    comparisons = _judge(actual, expected)
    one_more = {**actual, "x": np.ones(3)}
    controls = [judged_control("a dropout too many", _judge(one_more, expected), "number of calls")]
    for name in list(expected)[:1]:
        wrong = {**actual, name: actual.get(name, expected[name]) * 1.1 + 0.01}
        controls.append(judged_control("p 10 % off", _judge(wrong, expected), name))
    note = _note(torch_calls, paddle_calls, partners)
    stamps = {"ours": paddle_stamp, "reference": torch_stamp}
    result = step_result(
        pair, "forward", comparisons, controls, part="dropout", note=note, stamps=stamps
    )
    reasons = {c.name: c.reason for c in comparisons if not c.passed}
    divergences = []
    for call in torch_calls:
        partner = partners.get(call)
        cause = _one_sided(call, "PyTorch", pair) if partner is None else _difference(partner, call)
        if cause:
            divergences.append(_divergence(pair, partner or call, _name(call), reasons, cause))
    for call in alone:
        cause = _one_sided(call, "Paddle", pair)
        divergences.append(_divergence(pair, call, f"{_name(call)} (Paddle)", reasons, cause))
    return result, divergences


def _calls(
    pair: AnyPair, side: Any, model: Any, paired: Mapping[str, str]
) -> tuple[list[DropoutCall], Mapping[str, Any]]:
    """Return the dropout calls of one pass, and who computed it."""
    putting_back = kept(side, model, untrained(side, model))
    watching = dropouts_seen(side, model, paired)
    with putting_back, side.default_dtype(pair.dtype), watching as calls:
        output, _ = run_model(side, model, pair.plan.cast(pair.dtype, pair.dtype))
    tensors = leaves(output, side.is_tensor)
    if not tensors:
        raise ValueError(f"the {side.NAME} model returns no tensor")
    return calls, side.stamp(tensors[0][1])


def _partners(torch_calls: Sequence[DropoutCall], paddle_calls: Sequence[DropoutCall]) -> Partners:
    """Pair the calls of one layer in order; what is left over, across layers where all is equal."""
    partners: Partners = {}
    for place in dict.fromkeys(call.place for call in paddle_calls):
        both = [[c for c in side if c.place == place] for side in (torch_calls, paddle_calls)]
        if len(both[0]) == len(both[1]):
            partners.update(zip(*both, strict=True))
    keys: tuple[Callable[[DropoutCall], Any], ...] = (
        lambda call: (call.place, call.size, call.p),
        lambda call: (call.size, call.p, call.mode),
        lambda call: call.place,  # what is left in one layer pairs in order, whatever differs
    )
    for key in keys:
        for call in torch_calls:
            rest = [c for c in paddle_calls if c not in partners.values() and key(c) == key(call)]
            if call not in partners and rest:
                partners[call] = rest[0]
    return partners


def _settings(torch_call: DropoutCall, paddle_call: DropoutCall) -> np.ndarray:
    """Paddle's p, whether its mode and whether its axes are PyTorch's."""
    is_mode = paddle_call.mode == torch_call.mode
    return np.asarray([paddle_call.p, is_mode, not _has_other_axes(paddle_call, torch_call)], float)


def _has_other_axes(paddle_call: DropoutCall, torch_call: DropoutCall) -> bool:
    """Whether the masks drop along other axes; heads may be folded, whole masks transposed."""
    paddle_shape, torch_shape = paddle_call.shape, torch_call.shape
    if paddle_call.size != torch_call.size:
        return True
    is_transposed = sorted(paddle_shape) == sorted(torch_shape) and 1 not in paddle_shape
    return (
        len(paddle_shape) == len(torch_shape) and paddle_shape != torch_shape and not is_transposed
    )


def _name(call: DropoutCall) -> str:
    number = "" if call.number == 1 else f" number {call.number}"
    return f"dropout{number} of {call.place}"


def _judge(actual: Rows, expected: Rows) -> list[Comparison]:
    """Compare the number of calls, then the settings of each."""
    paddle_count, torch_count = np.asarray([len(actual)]), np.asarray([len(expected)])
    comparisons = [compare_arrays("(number of dropouts)", paddle_count, torch_count, bounds.EXACT)]
    return [*comparisons, *compare_mappings(actual, expected, _RULE)]


def _note(
    torch_calls: Sequence[DropoutCall], paddle_calls: Sequence[DropoutCall], partners: Partners
) -> str:
    """Say how many there are, and which stand in another layer."""
    if not torch_calls and not paddle_calls:
        return "neither side drops anything"
    elsewhere = [
        f"the dropout of {b.place} stands in {a.place} in PyTorch"
        for a, b in partners.items()
        if a.place != b.place
    ]
    counted = f"{len(paddle_calls)} dropouts in Paddle, {len(torch_calls)} in PyTorch"
    return "; ".join([counted, *elsewhere])


def _divergence(
    pair: AnyPair, call: DropoutCall, name: str, reasons: Mapping[str, str], cause: str
) -> Divergence:
    """What differs, at the layer of the call."""
    place = call.place.partition("#")[0]
    reason = reasons.get(name, "")
    return Divergence(name, place, "forward", pair.dtype, reason, cause, pair.code(place))


def _one_sided(call: DropoutCall, side: str, pair: AnyPair) -> str:
    """Say that only one side makes a call."""
    name, again, _ = call.place.partition("#")
    text = f"dropout in {name} with p={call.p:.6g} runs in {side} only"
    if again:
        more = "more" if side == "Paddle" else "less"
        return f"{text}: Paddle runs that layer once {more} than PyTorch"
    if side == "PyTorch":
        p = getattr(pair.layer(name)[0], "p", None)
        return text + (": Paddle's layer has p=0" if p == 0 else ": it is missing in Paddle")
    return text


def _difference(paddle_call: DropoutCall, torch_call: DropoutCall) -> str:
    """Say what is set differently in a dropout that both sides run."""
    place = paddle_call.place
    if _has_other_axes(paddle_call, torch_call):
        return (
            f"dropout in {place} drops along other axes: Paddle's mask has the shape "
            f"{paddle_call.shape}, PyTorch's {torch_call.shape}"
        )
    if abs(paddle_call.p - torch_call.p) > 1e-6:
        return (
            f"dropout in {place}: Paddle drops with p={paddle_call.p:.6g}, PyTorch with "
            f"p={torch_call.p:.6g}"
        )
    if paddle_call.mode == torch_call.mode:
        return ""
    if torch_call.mode == UPSCALED:
        return (
            f"dropout in {place}: mode={paddle_call.mode!r} leaves the kept elements as they are; "
            "PyTorch divides them by 1 - p: use mode='upscale_in_train'"
        )
    return f"dropout in {place}: Paddle runs {paddle_call.mode}, PyTorch {torch_call.mode}"
