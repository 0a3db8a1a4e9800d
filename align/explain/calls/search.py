"""Try every known slip in a wrong layer; the first that mends it is the cause."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from align.explain.calls import (
    attributes,
    call_order,
    readings,
    slips_layer,
    slips_shape,
    slips_value,
)
from align.explain.calls.calls import ACTIVATIONS, WatchedCall, watched
from align.explain.calls.trials import ERRORS, Bench
from align.explain.experiment import Edit, explain
from align.frameworks import on_paddle, on_torch
from align.pair.any_pair import AnyPair
from align.pair.isolation import Guilty

MANY = 200  # watched calls of one layer; beyond that it is a whole network
LARGE = 4_000_000  # elements of the tensor in question; experiments on more take too long

WORK = 200_000_000  # elements times trials of one layer
LEAST, MOST = 100, 2_000  # trials of a large layer, and of a small one

Slips = Callable[[WatchedCall], Iterator[slips_shape.Slip]]
SLIPS: Mapping[str, Slips] = {
    **dict.fromkeys(ACTIVATIONS, slips_value.activated),
    **dict.fromkeys(("concat", "stack"), slips_shape.joined),
    **dict.fromkeys(("split", "chunk", "unbind"), slips_shape.parted),
    **dict.fromkeys(("mean", "sum", "max", "min", "var", "std"), slips_value.reduced),
    **dict.fromkeys(("multiply", "divide"), slips_value.multiplied),
    **dict.fromkeys(("matmul", "bmm"), slips_value.multiplied_matrices),
    **dict.fromkeys(("sqrt", "rsqrt"), slips_value.rooted),
    **dict.fromkeys(("reshape", "flatten"), slips_shape.reshaped),
    **dict.fromkeys(slips_layer.OPTIONS, slips_layer.options),
    "transpose": slips_shape.transposed,
    "index": slips_shape.indexed,
    "arange": slips_shape.counted,
    "roll": slips_shape.rolled,
    "flip": slips_shape.flipped,
    "embedding": slips_shape.looked_up,
    "where": slips_value.chosen,
    "add": slips_value.added,
    "subtract": slips_value.subtracted,
    "pow": slips_value.raised,
    "linear": slips_layer.without_bias,
}
"""Function -> what may be wrong with a call of it."""


@dataclass(frozen=True)
class Study:
    """What the experiments on one wrong layer gave.

    Attributes:
        proved: the cause, because the difference vanished when it was undone; "" without.
        likely: what is odd about the layer otherwise, "" without.
    """

    proved: str = ""
    likely: str = ""


def study(pair: AnyPair, guilty: Guilty) -> Study:
    """Experiment on one wrong layer.

    Args:
        pair: the user's pair.
        guilty: from inject mode.
    """
    size = 0 if guilty.expected is None else guilty.expected.size
    if size > LARGE:
        return Study()
    rows = readings.rows(guilty, pair.layer(guilty.place)[2])
    if rows:
        return Study(rows)
    with Bench(pair, guilty.place).ready() as bench, np.errstate(all="ignore"):
        calls: list[WatchedCall] = []
        if not bench.trial(_watching(bench, lambda call: calls.append(call) or call.go())):
            return Study()  # it does not fail on its own, or not twice in the same way
        proved = call_order.swapped(bench) or call_order.unused(pair, bench)
        likely = call_order.uneven(bench)
        repairs = [attributes.repairs(pair, bench), call_order.insertions(bench)]
        if len(calls) <= MANY:
            repairs.append(_slips(pair, bench, calls))
        edits = (Edit(said, lambda _, c=change: c) for said, change in itertools.chain(*repairs))
        if not proved:
            budget = max(LEAST, min(MOST, WORK // max(size, 1)))
            found = explain(None, edits, bench.mended_by, budget)
            proved = "" if found is None else found.cause
        likely = likely or call_order.arguments(bench)
    return Study(proved, likely or readings.factors(guilty.ours, guilty.expected))


def _slips(
    pair: AnyPair, bench: Bench, calls: list[WatchedCall]
) -> Iterator[tuple[str, AbstractContextManager]]:
    masks = _masks(pair, bench)
    widths = _widths(bench, calls)
    for numbers in together(calls):
        call = calls[numbers[0]]
        slips = SLIPS.get(call.name)
        if call.name in ("softmax", "log_softmax"):
            found = slips_value.softmaxed(call, masks, widths)
        elif slips is None:
            continue
        else:
            found = slips(call)
        with contextlib.suppress(*ERRORS):  # a call of an unforeseen form has no known slip
            for said, answer in found:
                yield f"{said} ({call.place})", _instead(bench, numbers, answer)


def together(calls: Sequence[WatchedCall]) -> list[list[int]]:
    """Calls to change: every one by itself, then all of one line of the source (a loop)."""
    lines: dict[tuple[str, str], list[int]] = {}
    for call in calls:
        lines.setdefault((call.name, call.place), []).append(call.number)
    return [[c.number] for c in calls] + [held for held in lines.values() if len(held) > 1]


def _instead(
    bench: Bench, numbers: Sequence[int], answer: Callable[[WatchedCall], Any]
) -> AbstractContextManager:
    """Some calls answered in another way, all others as they are."""
    return _watching(bench, lambda call: answer(call) if call.number in numbers else call.go())


def _watching(bench: Bench, answer: Callable[[WatchedCall], Any]) -> AbstractContextManager:
    layers = [bench.layer, *bench.layer.sublayers()]
    names = dict.fromkeys(kind.__module__ for layer in layers for kind in type(layer).__mro__)
    own = [sys.modules[n] for n in names if n in sys.modules]
    return watched(lambda: bench.inside, answer, (*own, *layers))


def _masks(pair: AnyPair, bench: Bench) -> list[np.ndarray]:
    """Arrays that may be masks: flags, whole numbers 0 and 1, zeros and low values.

    They are looked for among what the partner and the model were given, and among constants that
    both layers hold.
    """
    _, module, _ = pair.layer(bench.key)
    constants = [] if module is None else [on_torch.numpy(b) for b in module.buffers()]
    constants += [on_paddle.numpy(b) for b in bench.layer.buffers()]
    found = []
    for array in (*bench.seen_by_partner(), *constants):
        if array.dtype.kind == "f":
            low = array <= -100
            good = low.any() and bool((low | (array == 0)).all())
        else:
            good = array.ndim > 1 and set(np.unique(array)) <= {0, 1}
        if good:
            found.append(array)
    return found


def _widths(bench: Bench, calls: list[WatchedCall]) -> list[int]:
    """Last sizes of what is multiplied in the layer and of its inputs: widths of a head, of all."""
    products = [call.args[:2] for call in calls if call.name in ("matmul", "bmm")]
    found = [x.shape[-1] for pair in products for x in pair if len(x.shape) > 1]
    inputs = bench.partner.inputs if bench.partner else []
    found += [a.shape[-1] for _, a in inputs if a.ndim > 1]
    return sorted(dict.fromkeys(found))
