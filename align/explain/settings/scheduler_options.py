"""Why the schedules of two optimizers differ: options exchanged, else what their curves show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from align.explain.experiment import fewest
from align.explain.settings import schedule_causes
from align.explain.settings.exchange import sentence
from align.frameworks import on_paddle
from align.frameworks.factories import next_rate
from align.frameworks.object_options import differing, options
from align.judge.update_judging import Curve, compare_curves
from align.pair import update_sides as sides
from align.pair.any_pair import AnyPair
from align.pair.update_sides import ScheduleSide
from sot_paddle.config import some

TRIALS = 12


def exchanged(pair: AnyPair, theirs: ScheduleSide, ours: ScheduleSide) -> str:
    """The options of Paddle's scheduler that have to be PyTorch's before all curves agree."""
    if theirs.scheduler is None or ours.scheduler is None:
        return ""
    mine, reference = options(ours.scheduler), options(theirs.scheduler)

    def passes(names: Sequence[str]) -> bool:
        def prepare(scheduler: Any) -> None:
            held = options(scheduler)
            for name in names:
                held[name].put(reference[name].value)
            on_paddle.begin_again(scheduler)

        try:
            curves = sides.matched(pair, theirs, sides.ours(pair, prepare))
        except on_paddle.ERRORS:
            return False
        return all(comparison.passed for comparison in compare_curves(curves))

    needed = fewest(differing(mine, reference), passes, TRIALS)
    values = [(name, mine[name].value, reference[name].value) for name in needed]
    return f"{sentence(values)}; with PyTorch's the schedule agrees" if values else ""


def of_curve(pair: AnyPair, curve: Curve, first: Curve, everywhere: bool) -> str:
    """The likely cause of one curve that differs, "" when nothing explains it.

    Args:
        pair: the user's pair.
        curve: of the parameters of one group.
        first: the first curve of the schedule.
        everywhere: all curves differ.
    """
    cause = schedule_causes.explain(curve.ours, curve.reference)
    if cause.startswith("constant factor") and not everywhere:
        return _group_factor(curve, first)
    return _proved(pair, curve, cause)


def _group_factor(curve: Curve, first: Curve) -> str:
    """One group's rate is multiplied by another number than on the other side."""
    at = int(np.argmax(np.abs(curve.reference)))
    ratio = curve.ours[at] / curve.reference[at] if curve.reference[at] else np.inf
    text = f"constant factor on group {curve.group}: Paddle's rate is {ratio:.6g} x PyTorch's"
    if first is not curve and first.ours[at] and first.reference[at]:
        mine, theirs = curve.ours[at] / first.ours[at], curve.reference[at] / first.reference[at]
        text += f" (times the first group's rate: Paddle {mine:.6g}, PyTorch {theirs:.6g})"
    return f"{text}; it holds {some(curve.parameters)}"


def _proved(pair: AnyPair, curve: Curve, cause: str) -> str:
    """Of a Paddle rate that never changes: whether the optimizer does not follow its scheduler."""
    if not cause.startswith("Paddle's rate never changes") or pair.plan.schedule is not None:
        return cause
    with on_paddle.default_dtype(pair.dtype):
        scheduler = on_paddle.make_optimizer(pair.plan, pair.our_model(True))[1]
    if scheduler is None:
        return f"{cause}; the Paddle factory returns no scheduler to step"
    rates = []
    for _ in curve.ours:
        rates.append(float(scheduler()))  # get_lr() is no getter
        next_rate(scheduler)
    followed = np.asarray(rates) * (curve.ours[0] / (rates[0] or 1.0))
    if not compare_curves([replace(curve, ours=followed)])[0].passed:
        return cause
    return (
        "Paddle's rate never changes: the optimizer was built with a number, its scheduler (which "
        "does change) never reaches it; with the scheduler's rates the schedule agrees"
    )
