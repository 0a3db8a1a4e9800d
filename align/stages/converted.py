"""Stage "weights": the weights that the user converted, against PyTorch's through the mapping.

The Paddle layer is read as the user gives it, before any weight of the reference is loaded into it.
Converting copies numbers: they must be equal to the last bit.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from align.explain.arrays import weight_causes
from align.frameworks import on_paddle, on_torch
from align.judge.comparator import compare_mappings
from align.judge.rounding import to_bfloat16
from align.record.arrays import Arrays
from align.record.request import Request
from align.record.results import Comparison, ControlResult, Divergence, StepResult
from align.record.tolerance import Tolerance
from align.stages.stages import judged_control

EXACT = Tolerance(
    "exact", 0.0, "a conversion moves numbers and does not compute: equal to the last bit"
)


def weights(pair: Any) -> tuple[StepResult, list[Divergence]]:
    """Compare every tensor that the Paddle layer came with.

    Args:
        pair: an `AnyPair` or its `Setup`. Instances are read as they are; callables build their
            models in float32, the precision of stored weights.

    Returns:
        The step, and one divergence with its cause for each wrong tensor.

    Raises:
        ValueError: the mapping holds no tensor.
    """
    setup = getattr(pair, "setup", pair)
    plan: Request = setup.plan
    model = on_torch.prepare(plan, _precision(plan.torch_module), plan.train)
    layer = on_paddle.prepare(plan, _precision(plan.paddle_layer), plan.train)
    expected = {n: _wide(a) for n, a in setup.weights.to_paddle(on_torch.state(model)).items()}
    if not expected:
        raise ValueError("converted=True: the pair has no tensor in common to compare")
    ours = {n: _wide(a) for n, a in on_paddle.state(layer).items() if n in expected}
    comparisons = compare(ours, expected)
    result = StepResult(
        plan.name,
        "weights",
        None,
        comparisons,
        _controls(expected),
        note=f"{len(expected)} tensors as the user converted them; the later steps run with "
        "PyTorch's own weights",
        stamps={
            "ours": on_paddle.stamp(next(iter(layer.state_dict().values()))),
            "reference": on_torch.stamp(next(iter(model.state_dict().values()))),
        },
    )
    return result, _divergences(ours, expected, comparisons)


def _precision(given: Any) -> str:
    """float64 holds what an instance holds; a callable builds at the usual precision."""
    return "float64" if hasattr(given, "state_dict") else "float32"


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype("int64" if array.dtype.kind in "biu" else "float64")


def compare(ours: Arrays, expected: Arrays) -> list[Comparison]:
    """Judge every tensor exactly, in the order of the reference."""
    return compare_mappings(ours, expected, EXACT)


def _divergences(ours: Arrays, expected: Arrays, comparisons: list[Comparison]) -> list[Divergence]:
    explain = weight_causes.Explainer(ours, expected)
    return [
        Divergence(c.name, c.name, "weights", "", c.reason, explain(c.name) or c.hint)
        for c in comparisons
        if not c.passed
    ]


def _controls(expected: Arrays) -> list[ControlResult]:
    """Slips of a conversion, planted in a copy of the right tensors."""
    name = max(expected, key=lambda n: (np.ptp(expected[n]) > 0, expected[n].size))
    array = expected[name]
    nudged = array.copy()
    at = np.unravel_index(array.size // 2, array.shape) if array.ndim else ()
    nudged[at] = np.nextafter(array[at], np.inf) if array.dtype.kind == "f" else array[at] + 1
    faults: dict[str, Arrays] = {
        "one value off by one unit in the last place": {**expected, name: nudged},
        "a tensor left out": {n: a for n, a in expected.items() if n != name},
    }
    for title, changed in (
        ("rows in another order", array[::-1] if array.ndim else array),
        ("a tensor rounded to bfloat16", to_bfloat16(array)),
    ):
        if array.dtype.kind == "f" and not np.array_equal(changed, array):
            faults[title] = {**expected, name: changed}
    for one, other in itertools.combinations(expected, 2):
        a, b = expected[one], expected[other]
        if a.shape == b.shape and not np.array_equal(a, b):
            faults["two tensors swapped"] = {**expected, one: b, other: a}
            break
    return [judged_control(k, compare(held, expected), name) for k, held in faults.items()]
