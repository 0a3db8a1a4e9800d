"""Stage ``learning_rate``: the rate of every step and every parameter group, over a whole schedule.

The rates come from the user's callables (`plan.schedule`), or from the optimizers that the user's
factories build: then the schedulers are stepped without running the models, and the groups are
matched by the parameters that they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from align.explain import rate_causes
from align.judge.rate_curves import Curve, compare_curves
from align.pair.pair import Pair
from align.record.results import Comparison, Divergence, StepResult
from align.record.run_report import place_of
from align.stages.stages import judged_control


@dataclass(frozen=True)
class _Schedules:
    """The rates of both sides.

    Attributes:
        curves: one for each group of parameters.
        explain: from a curve, the first curve, and whether all differ, to a cause.
        told: the options that explain every curve, "" for none.
        stamps: of both sides; none for rates that the user logs.
        source: Paddle's code.
    """

    curves: list[Curve]
    explain: Callable[[Curve, Curve, bool], str]
    told: str = ""
    stamps: dict[str, Any] = field(default_factory=dict)
    source: str = ""


def learning_rate(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Compare `plan.schedule_steps` rates of every group; they do not depend on the precision.

    Args:
        pair: with `schedule`, or with optimizer factories, or with the rates that they gave.

    Returns:
        The result, and one divergence for each group with another cause.

    Raises:
        ValueError: callables that return something else than so many finite numbers, or a
            scheduler that cannot be stepped without a metric.
    """
    logged = pair.logged_rates()
    held = _of_optimizers(pair) if logged is None else _of_logs(pair, logged)
    curves = held.curves
    comparisons = compare_curves(curves)
    controls = []
    for fault, rates in _faults(curves):
        planted = compare_curves([replace(curves[0], ours=rates), *curves[1:]])
        controls.append(judged_control(fault, planted, curves[0].name))
    series = {
        curve.name.replace("learning rate", "learning_rate"): {
            "paddle": curve.ours.tolist(),
            "pytorch": curve.reference.tolist(),
        }
        for curve in curves
    }
    steps = max((len(curve.reference) for curve in curves), default=0)
    result = StepResult(
        pair.plan.name,
        "learning_rate",
        None,
        comparisons,
        controls,
        note=f"{steps} steps, {len(curves)} group{'s' if len(curves) != 1 else ''}",
        series=series,
        stamps=held.stamps,
        framework_free=logged is not None,
    )
    return result, _divergences(pair, held, comparisons)


def _of_logs(pair: Pair, curve: Curve) -> _Schedules:
    def explain(one: Curve, *_: object) -> str:
        return rate_causes.explain(one.ours, one.reference)

    source = place_of(pair.plan.schedule[1]) if pair.live else ""
    return _Schedules([curve], explain, source=source)


def _of_optimizers(pair: Any) -> _Schedules:
    """Of a live pair: its schedulers, stepped."""
    # comparing files of two machines needs no framework
    from align.pair import schedule_sides as sides

    theirs, ours = sides.theirs(pair), sides.ours(pair)
    curves, told = sides.matched(pair, theirs, ours), ""
    if not all(c.passed for c in compare_curves(curves)):
        told = rate_causes.exchanged(pair, theirs, ours)
    given = pair.plan.optimizer
    return _Schedules(
        curves,
        partial(rate_causes.explain_group, pair),
        told,
        {"reference": theirs.stamp, "ours": ours.stamp},
        place_of(given[1]) if isinstance(given, (tuple, list)) else "",
    )


def _faults(curves: list[Curve]) -> Iterator[tuple[str, np.ndarray]]:
    """What a port gets wrong, in the first curve."""
    rates = curves[0].reference if curves else np.empty(0)
    if not rates.size:
        return
    yield "rates 0.1 % too large", rates * 1.001 + 1e-3 * (np.abs(rates).max() or 1.0)
    if np.ptp(rates) > 0:
        yield "shifted by one step", np.append(rates[1:], rates[-1] * 0.5)
    yield "one step short", rates[:-1]


def _divergences(pair: Pair, held: _Schedules, comparisons: list[Comparison]) -> list[Divergence]:
    """One for each cause; options that explain every curve are told once, for the schedule."""
    curves, step = held.curves, "learning_rate"
    wrong = [(c, one) for c, one in zip(curves, comparisons, strict=False) if not one.passed]
    if not curves:
        reason = "the two optimizers hold no parameter in common"
        where = comparisons[0].name
        return [Divergence(where, "schedule", step, pair.dtype, reason, "", held.source)]
    everywhere = len(wrong) == len(curves) or bool(held.told)
    found: list[Divergence] = []
    for index, (curve, one) in enumerate(wrong):
        cause = held.told or held.explain(curve, curves[0], everywhere)
        place = "schedule" if everywhere and index == 0 else curve.place
        if cause and any(cause == other.cause for other in found):
            continue
        cause, given = cause or one.hint, (place, step, pair.dtype, one.reason)
        found.append(Divergence(one.name, *given, cause, held.source))
    return found
