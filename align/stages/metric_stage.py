"""Stage "metric": both metrics on the reference's output and the user's labels.

The metric alone is judged, whatever the models do. Each side's function is called once: it may
count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from align.explain.losses import metric_causes
from align.frameworks import on_paddle, on_torch
from align.judge.comparator import compare_arrays, compare_mappings
from align.pair.any_pair import AnyPair
from align.record.casting import cast
from align.record.nested import leaves
from align.record.precision import held_dtype
from align.record.recording import ROOT
from align.record.results import Comparison, ControlResult, Divergence, StepResult
from align.record.tolerance import Tolerance
from align.stages.stages import judged_control

METRIC = "metric"
_WHY = (
    "scores are often computed in float32 (6e-8); one answer more among a million rows is as much"
)
SMALL = Tolerance("absolute", 1e-6, _WHY)
LARGE = Tolerance("scaled", 1e-6, f"{_WHY}; values above 1 relative to their size")
UNDEFINED = Tolerance("exact", 0.0, "both sides say that the score is undefined (NaN)")

Scores = dict[str, float]


def metric(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Compare the two metrics on one output.

    Args:
        pair: with `plan.metric` = (torch_metric, paddle_metric), callables of (output, labels) that
            return a number or a mapping of numbers.

    Returns:
        The step, and one divergence for each score that differs, at "metric NAME" ("metric" for a
        plain number).

    Raises:
        ValueError: there is no metric, or one returns something else than numbers.
    """
    if pair.plan.metric is None:
        raise ValueError("the metric stage needs metric=: there is none to compare")
    output = next(a for _, a in pair.reference.calls[ROOT].outputs if a.dtype.kind == "f")
    labels = cast(np.asarray(pair.plan.labels), *[held_dtype(pair.dtype)] * 2)
    sides = [_scores(pair, side, output, labels) for side in (on_paddle, on_torch)]
    (ours, own_stamp), (reference, stamp) = sides
    comparisons = compare(ours, reference)
    result = StepResult(
        pair.plan.name,
        "metric",
        None,
        comparisons,
        _controls(reference),
        note="both metrics got the reference's output",
        stamps={"ours": own_stamp, "reference": stamp},
    )
    found = []
    for comparison in result.failures:
        name = comparison.name
        cause = metric_causes.explain(name, ours, reference, output, labels)
        found.append(Divergence(name, name, "metric", "", comparison.reason, cause))
    return result, found


def _scores(
    pair: AnyPair, side: Any, output: np.ndarray, labels: np.ndarray
) -> tuple[Scores, Mapping[str, Any]]:
    """One side's scores by their names in the report, and who held the output."""
    function = pair.plan.metric[0 if side is on_torch else 1]
    given = side.tensor(output)
    with side.default_dtype(held_dtype(pair.dtype)):
        made = function(given, side.tensor(labels))
    if not isinstance(made, Mapping):
        return {METRIC: _number(made, side.NAME, METRIC)}, side.stamp(given)
    found = {}
    for name, value in leaves(made, lambda one: not isinstance(one, Mapping)):
        found[f"{METRIC} {name}"] = _number(value, side.NAME, name)
    if not found:
        raise ValueError(f"metric: the {side.NAME} function returned an empty mapping")
    return found, side.stamp(given)


def _number(value: Any, side: str, name: str) -> float:
    if on_torch.is_tensor(value):
        value = on_torch.numpy(value)
    elif on_paddle.is_tensor(value):
        value = on_paddle.numpy(value)
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"metric: {name!r} of the {side} side is a {type(value).__name__} of shape "
            f"{array.shape}, expected one number (or a mapping of numbers)"
        )
    return float(array.reshape(()))


def compare(ours: Scores, reference: Scores) -> list[Comparison]:
    """Judge every score; one that both sides call undefined is equal."""
    shared = [name for name in reference if name in ours]
    found = []
    for name in shared:
        a, b = ours[name], reference[name]
        if math.isnan(a) and math.isnan(b):
            zero = np.zeros(())
            found.append(compare_arrays(name, zero, zero, UNDEFINED))
            continue
        rule = SMALL if abs(b) <= 1 else LARGE
        found.append(compare_arrays(name, np.asarray(a), np.asarray(b), rule))
    absent = [name for name in (*reference, *ours) if name not in shared]
    if absent:
        sides = [{n: np.asarray(s[n]) for n in absent if n in s} for s in (ours, reference)]
        found += compare_mappings(*sides, SMALL)
    return found


def _controls(reference: Scores) -> list[ControlResult]:
    """Wrong scores made from the reference's."""
    name, value = max(
        reference.items(), key=lambda one: -1.0 if math.isnan(one[1]) else abs(one[1])
    )
    value = 0.0 if math.isnan(value) else value
    faults: dict[str, Scores] = {
        "a score 0.1 % off": {**reference, name: value * 1.001 + 1e-5},
        "a score that is not a number": {**reference, name: math.nan},
        "a score left out": {n: v for n, v in reference.items() if n != name},
    }
    if math.isnan(reference[name]):
        faults.pop("a score that is not a number")
    if value:
        faults["per cent instead of a fraction"] = {**reference, name: 100 * value}
    return [judged_control(k, compare(scores, reference), name) for k, scores in faults.items()]
