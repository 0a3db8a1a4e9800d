"""Stage "weights": the weights that the Paddle side came with, against PyTorch's as mapped.

A live Paddle layer is read as the user gives it, before any weight of the reference is loaded into
it. Converting copies numbers: they must be equal to the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from align.explain.array_edits import WeightExplainer
from align.judge.judging import each
from align.judge.rounding import to_bfloat16
from align.pair.pair import Pair
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.record.stored_arrays import Lazy
from align.stages.stages import judged_control

EXACT = Tolerance(
    "exact", 0.0, "a conversion moves numbers and does not compute: equal to the last bit"
)
Tensors = Mapping[str, np.ndarray]


def weights(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Compare every tensor that the Paddle side came with.

    Args:
        pair: with `plan.converted`, or dumps.

    Returns:
        The step, and one divergence with its cause for each wrong tensor.

    Raises:
        ValueError: the mapping holds no tensor.
    """
    both = pair.both_weights()
    if not both.expected:
        raise ValueError("converted=True: the pair has no tensor in common to compare")
    result = StepResult(
        pair.plan.name,
        "weights",
        None,
        list(compare(both.ours, both.expected)),
        _controls(both.expected),
        note=f"{len(both.expected)} tensors {both.note}",
        stamps=dict(both.stamps),
    )
    if not result.failures:
        return result, []
    explain = WeightExplainer(both.ours, both.expected)
    return result, [
        Divergence(c.name, c.name, "weights", "", c.reason, explain(c.name) or c.hint)
        for c in result.failures
    ]


def compare(ours: Tensors, expected: Tensors) -> Iterator[Comparison]:
    """Judge every tensor exactly, in the order of the reference, one at a time."""
    yield from each(ours, expected, None, lambda *_: EXACT, None)


def _controls(expected: Tensors) -> list[ControlResult]:
    """Slips of a conversion, planted in a copy of the right tensors."""
    name = max(expected, key=lambda n: (np.ptp(expected[n]) > 0, expected[n].size))
    array = expected[name]
    nudged = array.copy()
    at = np.unravel_index(array.size // 2, array.shape) if array.ndim else ()
    nudged[at] = np.nextafter(array[at], np.inf) if array.dtype.kind == "f" else array[at] + 1
    faults = {
        "one value off by one unit in the last place": _with(expected, {name: nudged}),
        "a tensor left out": _with(expected, {}, absent=name),
    }
    for title, changed in (
        ("rows in another order", array[::-1] if array.ndim else array),
        ("a tensor rounded to bfloat16", to_bfloat16(array)),
    ):
        if array.dtype.kind == "f" and not np.array_equal(changed, array):
            faults[title] = _with(expected, {name: changed})
    for one, other in itertools.combinations(expected, 2):
        a, b = expected[one], expected[other]
        if a.shape == b.shape and not np.array_equal(a, b):
            faults["two tensors swapped"] = _with(expected, {one: b, other: a})
            break
    return [judged_control(k, compare(held, expected), name) for k, held in faults.items()]


def _with(tensors: Tensors, changed: Tensors, absent: str = "") -> Lazy:
    """Some tensors changed or left out, the others read when they are compared."""
    found = Lazy({name: partial(tensors.__getitem__, name) for name in tensors if name != absent})
    for name in changed:
        found.hold(name, partial(changed.__getitem__, name))
    return found
