"""Stage ``learning_rate``: the rate of every step and every parameter group, over a whole schedule.

The rates come from the user's callables (`plan.schedule`), or from the optimizers that the user's
factories build: then the schedulers are stepped without running the models, and the groups are
matched by the parameters that they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from align.explain.rate_causes import explain
from align.frameworks import on_paddle, on_torch, stepping_paddle, stepping_torch
from align.frameworks.factories import source_of
from align.judge.bounds import SCHEDULE
from align.judge.comparator import compare_arrays
from align.pair.any_pair import AnyPair
from align.record.results import Comparison, ControlResult, Divergence, StepResult, some


@dataclass(frozen=True)
class Curve:
    """The rates of parameters that share a group on both sides.

    Attributes:
        group: PyTorch's group, counted from 0; None for rates that the user logs.
        parameters: Paddle's names.
        ours: (steps,) Paddle's rates.
        reference: (steps,) PyTorch's.
        only: the only curve of the schedule.
    """

    group: int | None
    parameters: tuple[str, ...]
    ours: np.ndarray
    reference: np.ndarray
    only: bool = False

    @property
    def place(self) -> str:
        """Of a divergence: "schedule", or "schedule of group 1"."""
        return "schedule" if self.only or self.group is None else f"schedule of group {self.group}"

    @property
    def name(self) -> str:
        """Of its comparison."""
        return self.place.replace("schedule", "learning rate")


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
    logged = plan.schedule is not None
    curves, stamps = ([_logged(plan)], {}) if logged else _built(pair)
    comparisons = compare(curves)
    controls = []
    for fault, rates in _faults(curves[0].ours) if curves else ():
        failed = [c for c in compare([replace(curves[0], ours=rates), *curves[1:]]) if not c.passed]
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
    return result, _divergences(pair, curves, comparisons)


def compare(curves: list[Curve]) -> list[Comparison]:
    """One comparison for each curve; a failed one when there is none."""
    if not curves:
        nothing = np.empty(0)
        return [
            compare_arrays("learning rate (no parameter in common)", nothing, nothing, SCHEDULE)
        ]
    return [compare_arrays(c.name, c.ours, c.reference, SCHEDULE) for c in curves]


def _logged(plan: Any) -> Curve:
    found = []
    for name, function in zip(("PyTorch", "Paddle"), plan.schedule, strict=True):
        given = function(plan.schedule_steps)
        try:
            rates = np.asarray([float(rate) for rate in given])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"schedule: {name}'s callable returned {type(given).__name__}, expected "
                f"{plan.schedule_steps} numbers ({error})"
            ) from error
        if rates.shape != (plan.schedule_steps,):
            raise ValueError(
                f"schedule: {name}'s callable returned {len(rates)} rates, expected "
                f"{plan.schedule_steps} (schedule_steps)"
            )
        if not np.isfinite(rates).all():
            raise ValueError(f"schedule: {name}'s callable returned a rate that is not finite")
        found.append(rates)
    return Curve(None, (), found[1], found[0], only=True)


def schedule_of(
    stepping: Any, optimizer: Any, scheduler: Any, model: Any, steps: int
) -> np.ndarray:
    """The rates that an optimizer would apply, its scheduler stepped after each.

    Args:
        stepping: `stepping_torch` or `stepping_paddle`.
        optimizer: it makes no step, so no weight moves.
        scheduler: None for a constant rate.
        model: whose parameters it holds.
        steps: how many.

    Returns:
        (steps, groups) float64.
    """
    rates = [stepping.rates(optimizer, model)]
    if scheduler is None:
        return np.repeat(np.asarray(rates), steps, axis=0)
    paddle_factors = None if stepping is stepping_torch else stepping.factors(optimizer, model)
    for _ in range(steps - 1):
        stepping.advance(scheduler)
        if paddle_factors is None:
            rates.append(stepping.rates(optimizer, model))
        else:
            base = stepping.base_rate(optimizer)
            rates.append([base * factor for factor in paddle_factors])
    return np.asarray(rates)


def _built(pair: AnyPair) -> tuple[list[Curve], dict]:
    """Curves of the groups of both optimizers, matched by the parameters that they hold."""
    plan, sides = pair.plan, []
    stamps = {}
    for key, side, stepping, model in (
        ("reference", on_torch, stepping_torch, pair.reference_model(pair.dtype, True)),
        ("ours", on_paddle, stepping_paddle, pair.our_model(True)),
    ):
        with side.default_dtype(pair.dtype):
            optimizer, scheduler = side.make_optimizer(plan, model)
            names = stepping.groups(optimizer, model)
            rates = schedule_of(stepping, optimizer, scheduler, model, plan.schedule_steps)
        sides.append((names, rates))
        stamps[key] = side.stamp(next(iter(stepping.parameters(model).values())))
    (theirs, their_rates), (ours, our_rates) = sides
    partners = pair.setup.weights.partners()
    group_of = {
        target: index
        for index, members in enumerate(theirs)
        for name in members
        for target in partners.get(name, ())
    }
    cells: dict[tuple[int, bytes], list[tuple[str, int]]] = {}
    for index, members in enumerate(ours):
        for name in members:
            if name in group_of:
                key = group_of[name], our_rates[:, index].tobytes()
                cells.setdefault(key, []).append((name, index))
    curves = [
        Curve(
            group,
            tuple(name for name, _ in held),
            our_rates[:, held[0][1]],
            their_rates[:, group],
            only=len(cells) == 1,
        )
        for (group, _), held in sorted(cells.items(), key=lambda item: item[0][0])
    ]
    return curves, stamps


def _faults(rates: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """What a port gets wrong, in the first curve."""
    yield "rates 0.1 % too large", rates * 1.001 + 1e-3 * (np.abs(rates).max() or 1.0)
    if np.ptp(rates) > 0:
        yield "shifted by one step", np.append(rates[1:], rates[-1] * 0.5)
    yield "one step short", rates[:-1]


def _divergences(
    pair: AnyPair, curves: list[Curve], comparisons: list[Comparison]
) -> list[Divergence]:
    wrong = [(c, one) for c, one in zip(curves, comparisons, strict=False) if not one.passed]
    source = source_of((pair.plan.schedule or pair.plan.optimizer)[1]) if _has_code(pair) else ""
    if not curves:
        reason = "the two optimizers hold no parameter in common"
        where = comparisons[0].name
        return [Divergence(where, "schedule", "learning_rate", pair.dtype, reason, "", source)]
    everywhere = len(wrong) == len(curves)
    found: list[Divergence] = []
    for index, (curve, comparison) in enumerate(wrong):
        cause = explain(curve.ours, curve.reference)
        if cause.startswith("constant factor") and not everywhere:
            cause = _group_factor(curve, curves[0])
        elif cause:
            cause = _proved(pair, curve, cause)
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
    """The cause with what the built Paddle scheduler itself says about it."""
    plan = pair.plan
    if not isinstance(plan.optimizer, (tuple, list)):
        return cause
    still = cause.startswith("Paddle's rate never changes")
    if not still and plan.schedule is None:
        return cause
    model = pair.our_model(True)

    def read(what: Callable[[Any, Any], float]) -> np.ndarray | None:
        """What a fresh scheduler says at every step; get_lr() may change it, hence fresh."""
        with on_paddle.default_dtype(pair.dtype):
            optimizer, scheduler = on_paddle.make_optimizer(plan, model)
        if not (callable(scheduler) and hasattr(scheduler, "get_lr")):
            return None
        found = []
        for _ in range(plan.schedule_steps):
            found.append(float(what(optimizer, scheduler)))
            stepping_paddle.advance(scheduler)
        return np.asarray(found)

    right = read(lambda _, scheduler: scheduler())
    if right is None:
        without = still and on_paddle.make_optimizer(plan, model)[1] is None
        return f"{cause}; the Paddle factory returns no scheduler to step" if without else cause
    if still and np.ptp(right) > 0 and np.ptp(read(lambda optimizer, _: optimizer.get_lr())) == 0:
        return (
            "Paddle's rate never changes: the optimizer was built with a number, its scheduler "
            "(which does change) never reaches it"
        )
    again = read(lambda _, scheduler: scheduler.get_lr())
    if _same(curve.ours, again) and not _same(curve.ours, right):
        return (
            "getter misuse: the logged rates are those of the Paddle scheduler's get_lr(), which "
            "is no getter (it applies the recurrence again); the optimizer applies scheduler()"
        )
    return cause


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=0))
