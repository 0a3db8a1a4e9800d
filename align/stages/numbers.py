"""Steps "weights", "metric" and "learning_rate": what is compared without running the layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from align.explain import rate_causes
from align.explain.array_edits import WeightExplainer, to_bfloat16
from align.explain.experiment import renamed
from align.judge.comparator import compare_arrays, compare_mappings
from align.judge.update_judging import Curve, compare_curves
from align.pair.pair import Pair
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.record.run_report import place_of
from align.stages.stages import judged_control, step_result

EXACT = Tolerance(
    "exact", 0.0, "a conversion moves numbers and does not compute: equal to the last bit"
)


def weights(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Compare every tensor that the Paddle side came with.

    Returns:
        The step, and one divergence with its cause for each wrong tensor.

    Raises:
        ValueError: the mapping holds no tensor.
    """
    both = pair.both_weights()
    if not both.reference:
        raise ValueError("converted=True: the pair has no tensor in common to compare")
    as_given = "as the user converted them; the later steps run with PyTorch's own weights"
    note = f"{len(both.reference)} tensors {as_given}"
    comparisons = list(compare_mappings(both.ours, both.reference, EXACT))
    controls = _controls(both.reference)
    result = step_result(pair, "weights", comparisons, controls, note=note, stamps=both.stamps)
    if not result.failures:
        return result, []
    explain = WeightExplainer(both.ours, both.reference)
    return result, [
        Divergence(c.name, c.name, "weights", "", c.reason, explain(c.name) or c.hint)
        for c in result.failures
    ]


def _controls(expected: Mapping[str, np.ndarray]) -> list[ControlResult]:
    """Slips of a conversion, planted in a copy of the right tensors."""
    name = max(expected, key=lambda n: (np.ptp(expected[n]) > 0, expected[n].size))
    array = expected[name]
    nudged = array.copy()
    at = np.unravel_index(array.size // 2, array.shape) if array.ndim else ()
    nudged[at] = np.nextafter(array[at], np.inf) if array.dtype.kind == "f" else array[at] + 1
    others = {other: tensor for other, tensor in expected.items() if other != name}
    faults = {
        "one value off by one unit in the last place": {**expected, name: nudged},
        "a tensor left out": others,
    }
    for title, changed in (
        ("rows in another order", array[::-1] if array.ndim else array),
        ("a tensor rounded to bfloat16", to_bfloat16(array)),
    ):
        if array.dtype.kind == "f" and not np.array_equal(changed, array):
            faults[title] = {**expected, name: changed}
    for first, second in itertools.combinations(expected, 2):
        a, b = expected[first], expected[second]
        if a.shape == b.shape and not np.array_equal(a, b):
            faults["two tensors swapped"] = {**expected, first: b, second: a}
            break
    return [
        judged_control(title, compare_mappings(ours, expected, EXACT), name)
        for title, ours in faults.items()
    ]


_WHY = (
    "scores are often computed in float32 (6e-8); one answer more among a million rows is as much"
)
SMALL = Tolerance("absolute", 1e-6, _WHY)
LARGE = Tolerance("scaled", 1e-6, f"{_WHY}; values above 1 relative to their size")
UNDEFINED = Tolerance("exact", 0.0, "both sides say that the score is undefined (NaN)")

Scores = dict[str, float]


def metric(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Compare the two metrics on one output.

    Returns:
        The step, and one divergence for each score that differs, at "metric NAME" ("metric" for a
        plain number).

    Raises:
        ValueError: a metric returns something else than numbers.
    """
    both = pair.both_scores()
    ours, reference = both.ours, both.reference
    comparisons, controls = compare_scores(ours, reference), _score_controls(reference)
    note = "both metrics got the reference's output"
    result = step_result(pair, "metric", comparisons, controls, note=note, stamps=both.stamps)
    divergences = []
    for comparison in result.failures:
        name = comparison.name
        cause = comparison.hint
        if name not in ours or name not in reference:
            cause = renamed(name, ours, reference, partial(math.isclose, rel_tol=2e-6))
        divergences.append(Divergence(name, name, "metric", "", comparison.reason, cause))
    return result, divergences


def compare_scores(ours: Scores, reference: Scores) -> list[Comparison]:
    """Judge every score; one that both sides call undefined is equal."""
    shared = [name for name in reference if name in ours]
    comparisons = []
    for name in shared:
        a, b = ours[name], reference[name]
        if math.isnan(a) and math.isnan(b):
            zero = np.zeros(())
            comparisons.append(compare_arrays(name, zero, zero, UNDEFINED))
            continue
        rule = SMALL if abs(b) <= 1 else LARGE
        comparisons.append(compare_arrays(name, np.asarray(a), np.asarray(b), rule))
    alone = ({n: np.asarray(s[n]) for n in s if n not in shared} for s in (ours, reference))
    return [*comparisons, *compare_mappings(*alone, SMALL)]


def _score_controls(reference: Scores) -> list[ControlResult]:
    """Wrong scores made from the reference's."""
    name, value = max(
        reference.items(), key=lambda score: -1.0 if math.isnan(score[1]) else abs(score[1])
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
    return [
        judged_control(k, compare_scores(scores, reference), name) for k, scores in faults.items()
    ]


def learning_rate(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Compare `plan.schedule_steps` rates of every group; they do not depend on the precision.

    Returns:
        The result, and one divergence for each group with another cause.

    Raises:
        ValueError: callables that return something else than so many finite numbers, or a
            scheduler that cannot be stepped without a metric.
    """
    step, logged, plan = "learning_rate", pair.logged_rates(), pair.plan
    options, stamps = "", {}
    if logged is not None:
        curves, of_sides = [logged], plan.schedule if pair.live else None
    else:
        # comparing files of two machines needs no framework
        from align.pair import update_sides as sides

        torch, paddle = (sides.schedule_of(pair, s) for s in (pair.setup.torch, pair.setup.paddle))
        curves, of_sides = sides.schedule_curves(pair, torch, paddle), plan.optimizer
        stamps = {"reference": torch.stamp, "ours": paddle.stamp}
        if not all(comparison.passed for comparison in compare_curves(curves)):
            options = rate_causes.exchanged(pair, torch, paddle)
    source = place_of(of_sides[1]) if isinstance(of_sides, (tuple, list)) else ""
    comparisons, controls, series = compare_curves(curves), [], {}
    for fault, rates in _faults(curves):
        planted = compare_curves([replace(curves[0], ours=rates), *curves[1:]])
        controls.append(judged_control(fault, planted, curves[0].name))
    for curve in curves:
        both = {"paddle": curve.ours.tolist(), "pytorch": curve.reference.tolist()}
        series[curve.name.replace("learning rate", step)] = both
    steps = max((len(curve.reference) for curve in curves), default=0)
    note = f"{steps} steps, {len(curves)} group{'s' if len(curves) != 1 else ''}"
    result = step_result(
        pair,
        step,
        comparisons,
        controls,
        note=note,
        series=series,
        stamps=stamps,
        framework_free=logged is not None,
    )
    causes = _rate_causes(curves, comparisons, options)
    return result, [
        Divergence(c.name, place, step, pair.dtype, reason, cause, source)
        for c, place, reason, cause in causes
    ]


def _faults(curves: list[Curve]) -> Iterator[tuple[str, np.ndarray]]:
    """What a port gets wrong, in the first curve."""
    rates = curves[0].reference if curves else np.empty(0)
    if not rates.size:
        return
    yield "rates 0.1 % too large", rates * 1.001 + 1e-3 * (np.abs(rates).max() or 1.0)
    if np.ptp(rates) > 0:
        yield "shifted by one step", np.append(rates[1:], rates[-1] * 0.5)
    yield "one step short", rates[:-1]


def _rate_causes(
    curves: list[Curve], comparisons: list[Comparison], options: str
) -> list[tuple[Comparison, str, str, str]]:
    """Return comparison, place, reason and cause of each difference with another cause.

    Args:
        options: sentence on the options that explain every curve, which are told once, for the
            schedule; "" for none.
    """
    if not curves:
        reason = "the two optimizers hold no parameter in common"
        return [(comparisons[0], "schedule", reason, "")]
    pairs = zip(curves, comparisons, strict=True)
    wrong = [(curve, comparison) for curve, comparison in pairs if not comparison.passed]
    everywhere = len(wrong) == len(curves) or bool(options)
    causes: dict[str, tuple[Comparison, str, str, str]] = {}
    for index, (curve, comparison) in enumerate(wrong):
        cause = options or rate_causes.explain_group(curve, everywhere)
        place = "schedule" if everywhere and index == 0 else curve.place
        row = comparison, place, comparison.reason, cause or comparison.hint
        causes.setdefault(cause or comparison.name, row)
    return list(causes.values())
