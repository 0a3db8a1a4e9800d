"""Stage "metric": both metrics on the reference's output and the user's labels.

The metric alone is judged, whatever the models do. Each side's function is called once: it may
count.
"""

from __future__ import annotations

import math

import numpy as np

from align.explain.loss_causes import explain_score
from align.judge.comparator import compare_arrays, compare_mappings
from align.pair.pair import Pair
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.stages.stages import judged_control

_WHY = (
    "scores are often computed in float32 (6e-8); one answer more among a million rows is as much"
)
SMALL = Tolerance("absolute", 1e-6, _WHY)
LARGE = Tolerance("scaled", 1e-6, f"{_WHY}; values above 1 relative to their size")
UNDEFINED = Tolerance("exact", 0.0, "both sides say that the score is undefined (NaN)")

Scores = dict[str, float]


def metric(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Compare the two metrics on one output.

    Args:
        pair: with `plan.metric` = (torch_metric, paddle_metric), callables of (output, labels) that
            return a number or a mapping of numbers; or with the numbers that they returned.

    Returns:
        The step, and one divergence for each score that differs, at "metric NAME" ("metric" for a
        plain number).

    Raises:
        ValueError: there is no metric, or one returns something else than numbers.
    """
    if not pair.asks("metric"):
        raise ValueError("the metric stage needs metric=: there is none to compare")
    both = pair.both_scores()
    ours, reference = both.ours, both.reference
    result = StepResult(
        pair.plan.name,
        "metric",
        None,
        compare(ours, reference),
        _controls(reference),
        note="both metrics got the reference's output",
        stamps=dict(both.stamps),
    )
    found = []
    for comparison in result.failures:
        name = comparison.name
        cause = explain_score(name, ours, reference, len(both.output))
        found.append(Divergence(name, name, "metric", "", comparison.reason, cause))
    return result, found


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
