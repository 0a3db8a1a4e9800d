"""Stage ``learning_rate``: the rate of every step and every parameter group, over a whole schedule.

The rates come from the user's callables (`plan.schedule`), or from the optimizers that the user's
factories build: then the schedulers are stepped without running the models, and the groups are
matched by the parameters that they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from align.explain.settings import scheduler_options
from align.frameworks.factories import source_of
from align.pair import schedule_sides as sides
from align.pair.any_pair import AnyPair
from align.pair.schedule_sides import Curve
from align.record.results import Comparison, ControlResult, Divergence, StepResult


def learning_rate(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Compare `plan.schedule_steps` rates of every group; they do not depend on the precision.

    Args:
        pair: with `schedule`, or with optimizer factories.

    Returns:
        The result, and one divergence for each group with another cause.

    Raises:
        ValueError: callables that return something else than so many finite numbers, or a
            scheduler that cannot be stepped without a metric.
    """
    plan = pair.plan
    logged, stamps, told = plan.schedule is not None, {}, ""
    if logged:
        curves = [sides.logged(plan)]
    else:
        theirs, ours = sides.theirs(pair), sides.ours(pair)
        curves = sides.matched(pair, theirs, ours)
        stamps = {"reference": theirs.stamp, "ours": ours.stamp}
    comparisons = sides.compare(curves)
    if not (logged or all(c.passed for c in comparisons)):
        told = scheduler_options.exchanged(pair, theirs, ours)
    controls = []
    for fault, rates in _faults(curves[0].ours) if curves else ():
        failed = [
            c for c in sides.compare([replace(curves[0], ours=rates), *curves[1:]]) if not c.passed
        ]
        detail = failed[0].reason if failed else "nothing failed"
        controls.append(ControlResult(fault, bool(failed), detail, curves[0].name))
    series = {
        curve.name.replace("learning rate", "learning_rate"): {
            "paddle": curve.ours.tolist(),
            "pytorch": curve.reference.tolist(),
        }
        for curve in curves
    }
    result = StepResult(
        plan.name,
        "learning_rate",
        None,
        comparisons,
        controls,
        note=f"{plan.schedule_steps} steps, {len(curves)} group{'s' if len(curves) != 1 else ''}",
        series=series,
        stamps=stamps,
        framework_free=logged,
    )
    return result, _divergences(pair, curves, comparisons, told)


def _faults(rates: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """What a port gets wrong, in the first curve."""
    yield "rates 0.1 % too large", rates * 1.001 + 1e-3 * (np.abs(rates).max() or 1.0)
    if np.ptp(rates) > 0:
        yield "shifted by one step", np.append(rates[1:], rates[-1] * 0.5)
    yield "one step short", rates[:-1]


def _divergences(
    pair: AnyPair, curves: list[Curve], comparisons: list[Comparison], told: str
) -> list[Divergence]:
    """One for each cause; options that explain every curve are told once, for the schedule."""
    wrong = [(c, one) for c, one in zip(curves, comparisons, strict=False) if not one.passed]
    source = source_of((pair.plan.schedule or pair.plan.optimizer)[1]) if _has_code(pair) else ""
    if not curves:
        reason = "the two optimizers hold no parameter in common"
        where = comparisons[0].name
        return [Divergence(where, "schedule", "learning_rate", pair.dtype, reason, "", source)]
    everywhere = len(wrong) == len(curves) or bool(told)
    found: list[Divergence] = []
    for index, (curve, comparison) in enumerate(wrong):
        cause = told or scheduler_options.of_curve(pair, curve, curves[0], everywhere)
        place = "schedule" if everywhere and index == 0 else curve.place
        if cause and any(cause == one.cause for one in found):
            continue
        found.append(
            Divergence(
                comparison.name,
                place,
                "learning_rate",
                pair.dtype,
                comparison.reason,
                cause or comparison.hint,
                source,
            )
        )
    return found


def _has_code(pair: AnyPair) -> bool:
    return pair.plan.schedule is not None or isinstance(pair.plan.optimizer, (tuple, list))
