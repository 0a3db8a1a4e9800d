"""Running statistics after a forward pass in training mode, where gradients cannot be compared.

In float32 the gradients of the token embeddings part by chance (a ReLU or a maximum that flips),
so their cases compare the forward pass alone; what the batch norms keep is compared here.
"""

from __future__ import annotations

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds_models import StatisticsCase
from align.cases.planted_controls import judge
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, ControlResult, StepResult, Tolerance

_RULE = Tolerance(
    "scaled",
    1e-5,
    "a batch moves a running value by 1 to 10 % of itself: rounding of the batch's moments, below "
    "1e-5, shows as less than 1e-6; a value that is never updated is 1e-3 and more off",
)


def run(case: StatisticsCase, dtype: str, context: Context) -> StepResult:
    """Compare every running mean and variance, in Paddle's names."""
    pair = context.pair(case, dtype)
    ours, reference = pair.ours_pass, pair.reference_pass
    expected = pair.to_paddle(reference.buffers)
    return StepResult(
        case.name,
        "forward",
        dtype,
        _compare(ours.buffers, expected),
        _controls(ours.buffers, expected, pair.to_paddle(pair.reference_state)),
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )


def _compare(ours: Arrays, expected: Arrays) -> list[Comparison]:
    return compare_mappings(ours, expected, _RULE)


def _controls(ours: Arrays, expected: Arrays, before: Arrays) -> list[ControlResult]:
    """Statistics that stay as they were, and those of a momentum the other way round."""
    results = []
    for kind in ("running_mean", "running_var"):
        names = [name for name in ours if name.endswith(kind)]
        kept = {**ours, **{name: before[name] for name in names}}
        results.append(judge(f"{kind} never updated", _compare(kept, expected), names[0]))
    name = next(iter(ours))
    lagging = {**ours, name: np.float32(0.5) * (ours[name] + before[name])}
    results.append(judge("half of an update", _compare(lagging, expected), name))
    return results
