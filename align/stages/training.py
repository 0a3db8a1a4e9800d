"""Stages ``optimizer`` and ``training``: each optimizer alone, then steps of the whole model.

In ``optimizer`` both start from the reference's weights and get the same gradients for a few steps;
their schedules step, too. Compared by name are the members, the rate applied, the update of a step
without gradients (weight decay), every update and every moment. In ``training`` both make the
plan's steps. The reference's final tensors are kept in a store; a moved run and Paddle's run are
compared with them one tensor at a time, read off the live model.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from align.explain import locate, rate_causes
from align.judge import bounds
from align.judge.bounds import Settling
from align.judge.comparator import compare_arrays, compare_mappings, within
from align.judge.drift import FIRST, driven
from align.judge.judging import largest
from align.judge.noise_band import Find, Kinds
from align.judge.update_judging import (
    MEMBERS,
    RATES,
    ROOM,
    SAMPLE,
    ParameterTrace,
    SideTrace,
    UpdateJudge,
)
from align.pair.pair import STATE, Pair, TrainingRuns, in_paddle, tensor_title
from align.record.arrays import Lazy
from align.record.recording import TrainingRun
from align.record.request import exchanged
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.record.run_report import place_of
from align.stages.stages import judged_control, step_result

if TYPE_CHECKING:
    from align.pair.any_pair import AnyPair
    from align.pair.update_sides import UpdateSides

DRIFT = "drift of the weights"
AVERAGES = "average"
"""Kind of the tensors of a moving average."""
_SHARE = 0.01  # by how much the controls change a weight or an update
_SURE = 20  # times the room for rounding, the least that they change: it shows in any norm


def training(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Losses, rates, drift of the weights, final tensors and moments after the plan's steps.

    Returns:
        StepResult with the curves "loss", "learning_rate" and "drift" (Paddle's distance from
        PyTorch after each step, and what is allowed), and the first divergence.
    """
    judge = TrainingJudge(pair, pair.trainings())
    with judge.runs.ours() as ours:
        measured, drifts = list(judge.everything(ours)), judge.drift(ours)
        wrong = judge.one_percent_off(ours, measured)
    comparisons = judge.settle(measured, drifts)
    pair.note_left_out("training", judge.settling)
    controls = _controls(judge, ours, wrong)
    if pair.live:
        controls += _other_order(pair, judge)
    reference = judge.reference
    rates = {"paddle": ours.learning_rates, "pytorch": reference.learning_rates}
    series = {"loss": {"paddle": ours.losses, "pytorch": reference.losses}, "learning_rate": rates}
    if judge.drifts:
        series["drift"] = {
            "paddle": [comparison.worst for comparison in judge.drifts],
            "allowed": [comparison.bound for comparison in judge.drifts],
        }
    count = judge.settling.band.runs
    judged_by = f"judged by {count} moved runs of PyTorch" if count else "no moved run was needed"
    notes = filter(None, [judged_by, judge.settling.note, "dropout is off on both sides"])
    stamps = {"ours": ours.stamp, "reference": reference.stamp}
    note = "; ".join(notes)
    result = step_result(
        pair, "training", comparisons, controls, note=note, series=series, stamps=stamps
    )
    return result, _divergences(pair, result, rates)


class TrainingJudge:
    """Compares a run of the Paddle side with the reference, one quantity at a time.

    Attributes:
        settling: judges what missed its floor.
        drifts: the settled comparisons of the drift, one for each step; [] where it is not known.
    """

    def __init__(self, pair: Pair, runs: TrainingRuns) -> None:
        self.plan, self.runs = pair.plan, runs
        self.reference, self._oracle = runs.reference, runs.oracle
        weights = pair.setup.weights
        self._expected = in_paddle(weights, self.reference)
        self._judged: Kinds = {} if self._oracle is None else in_paddle(weights, self._oracle)
        self._sizes = {name: math.prod(row.destination.shape) for row, _, name in weights.named()}
        self._base = bounds.training(pair.dtype, pair.pooled, len(self.reference.losses))
        self._statistics_rule = bounds.TOLERANCES["statistics", pair.dtype]
        self._statistics = weights.statistics
        self._find_tensor = pair.judge.find_tensor
        self._scales = {
            kind: largest(arrays.values()) for kind, arrays in self.reference.moments.items()
        }
        exact = pair.dtype == "float64"
        self.settling = Settling(runs.band, self.find, self.scale, exact=exact, chosen=pair.chosen)
        self.drifts: list[Comparison] = []

    def find(self, name: str) -> Find | None:
        """What picks the spread of a comparison."""
        if name == "losses":
            return lambda spreads: spreads.get(("losses", name))
        if name.startswith(DRIFT):
            step = name.rpartition(" ")[2]
            return lambda spreads: spreads.get(("drift", step))
        kind, _, tensor = name.rpartition("/")
        return self._find_tensor(kind or "state", tensor)

    def scale(self, name: str) -> float | None:
        """The largest value of the kind of a comparison, None for the weights."""
        return self._scales.get(name.rpartition("/")[0])

    def everything(self, run: TrainingRun) -> Iterator[Comparison]:
        """Rates, losses, then every tensor, by their floors; see `driven` for the weights."""
        paddle_kinds, rates = {STATE: run.state, **run.moments}, self.reference.learning_rates
        firsts = (self._judged or self._expected).get(FIRST, {})
        yield self.rates(run.learning_rates)
        yield self.losses(run.losses)
        for kind in dict.fromkeys([*self._expected, *paddle_kinds]):
            comparisons = self.tensors(kind, paddle_kinds.get(kind, {}))
            yield from driven(comparisons, firsts, rates) if kind == STATE else comparisons

    def drift(self, ours: TrainingRun) -> list[Comparison]:
        """The sampled weights after each step by their floors; [] where they are not known."""
        rule, comparisons = dataclasses.replace(self._base, norm="l2"), []
        for step in range(1, len(ours.samples) if len(self.reference.samples) else 0):
            a, b, o = (
                None if run is None else run.samples[step][self.runs.steady]
                for run in (ours, self.reference, self._oracle)
            )
            name = f"{DRIFT} after step {step}"
            comparisons.append(compare_arrays(name, a, b, rule, oracle=o))
        return comparisons

    def settle(self, comparisons: list[Comparison], drifts: list[Comparison]) -> list[Comparison]:
        """Everything, judged by the band where a floor was missed; the drift is one comparison."""
        settled = self.settling.settle([*comparisons, *drifts])
        names = {comparison.name for comparison in drifts}
        self.drifts = [comparison for comparison in settled if comparison.name in names]
        rest = [comparison for comparison in settled if comparison.name not in names]
        drift = [_worst_drift(self.drifts)] if self.drifts else []
        return [*rest[:2], *drift, *rest[2:]]  # after the rates and the losses

    def rates(self, rates: Sequence[float]) -> Comparison:
        """The learning rates that the steps applied."""
        expected = np.asarray(self.reference.learning_rates)
        return compare_arrays("learning rates", np.asarray(rates), expected, bounds.RATE)

    def losses(self, losses: Sequence[float]) -> Comparison:
        """The loss of every step."""
        oracle = None if self._oracle is None else np.asarray(self._oracle.losses)
        expected = np.asarray(self.reference.losses)
        return compare_arrays("losses", np.asarray(losses), expected, self._base, oracle=oracle)

    def tensors(
        self, kind: str, ours: Mapping[str, np.ndarray], only: Sequence[str] | None = None
    ) -> Iterator[Comparison]:
        """The final tensors of one kind, ``only`` some of them.

        Of a kind of moments also those that Paddle alone has; of the weights what is paired.
        """
        expected = self._expected.get(kind, {})
        names = [*(only or expected)]
        if kind != STATE:
            names += [name for name in ours if name not in expected]
        a, b, o = (
            Lazy.of(side, {tensor_title(kind, name): name for name in names if name in side})
            for side in (ours, expected, self._judged.get(kind, {}))
        )
        oracle, scale = None if self._oracle is None else o, self._scales.get(kind)
        yield from compare_mappings(a, b, self._rule, oracle=oracle, zero_scale=scale)

    def _rule(self, title: str) -> Tolerance:
        """The training rule; running statistics have their own."""
        return self._statistics_rule if title in self._statistics else self._base

    def one_percent_off(self, run: TrainingRun, judged: Sequence[Comparison]) -> list[Comparison]:
        """The largest tensor whose floor shows an error of 1 %, with that error, by the floor."""
        bounds_of = {comparison.name: comparison.bound for comparison in judged}
        shown = [name for name in run.state if bounds_of.get(name, 1.0) < _SHARE / 2]
        name = max(shown, key=lambda tensor: self._sizes.get(tensor, 0), default=None)
        if name is None:
            return []
        return list(self.tensors(STATE, {name: run.state[name] * (1 + _SHARE) + _SHARE}, [name]))


def _worst_drift(steps: Sequence[Comparison]) -> Comparison:
    """The worst of the settled comparisons of the steps; its position is the step, from 0."""
    at = int(np.argmax([step.severity for step in steps]))
    worst, reason = steps[at], ""
    first = next((i for i, step in enumerate(steps) if not step.passed), None)
    if first is not None:
        reason = (
            f"the weights leave the noise band at step {first + 1}; worst at step {at + 1}: "
            f"{worst.worst:.2e} of their norm from PyTorch's, {worst.bound:.2e} is allowed"
        )
    return dataclasses.replace(
        worst, name=DRIFT, passed=not reason, position=(at,), reason=reason, hint=""
    )


def _controls(
    judge: TrainingJudge, run: TrainingRun, wrong: Sequence[Comparison]
) -> list[ControlResult]:
    """Faults that this very run must catch."""
    rates = list(judge.reference.learning_rates)  # of Paddle, a fault may be undone
    late = [rates[0], *rates[:-1]]
    if late == rates:  # a constant schedule is scaled instead
        late = [rate * 1.001 for rate in rates]
    faults: dict[str, Iterable[Comparison]] = {"a rate one step late": [judge.rates(late)]}
    if judge.drifts:
        last = judge.drifts[-1]
        what = "weights twice the allowed drift away after the last step"
        away = dataclasses.replace(
            last, worst=last.worst + 2 * last.bound, passed=False, reason=what
        )
        faults[what] = [_worst_drift([*judge.drifts[:-1], within(away, last.bound)])]
    if wrong:
        faults["one tensor 1 % off at the end"] = judge.settling.planted(wrong)
    return [judged_control(title, comparisons, "the run") for title, comparisons in faults.items()]


def _other_order(pair: Pair, judge: TrainingJudge) -> list[ControlResult]:
    """A run of Paddle on the batches in another order, where there are several."""
    number, batches = exchanged(pair.plan.batches or (), pair.plan.accumulate)
    if not number:
        return []
    title = f"batches[0] and batches[{number}] exchanged"
    with judge.runs.ours(dataclasses.replace(judge.plan, batches=batches)) as run:
        judged = judge.settling.planted(judge.everything(run))
        return [judged_control(title, judged, "the run")]


def _divergences(
    pair: Pair, result: StepResult, rates: Mapping[str, list[float]]
) -> list[Divergence]:
    """The first failed comparison; where the weights leave the band is said with it."""
    first = result.first_failure
    if first is None:
        return []
    places = {"losses": "loss", "learning rates": "schedule", DRIFT: "weights"}
    place = places.get(first.name) or first.name.rpartition("/")[2]
    reasons = [first.reason, *(c.reason for c in result.failures if c.name == DRIFT)]
    reason = "; ".join(dict.fromkeys(reasons))
    if place == "schedule":
        cause = rate_causes.explain(*(np.asarray(side) for side in rates.values()))
    elif first.name.startswith(f"{AVERAGES}/"):
        place, cause = first.name, ""
    else:
        cause = locate.running_statistic(pair, first.name)
    cause = cause or first.hint
    return [Divergence(first.name, place, "training", result.dtype, reason, cause)]


MOST = 20_000_000
"""Trained numbers above which the optimizer's rule is not compared on its own, in training only."""


def optimizer(pair: AnyPair) -> tuple[StepResult, list[Divergence]] | None:
    """Compare both optimizers on the same gradients, in the pair's precision.

    Returns:
        The result, and a divergence for every setting that differs; None for a large model.

    Raises:
        ValueError: an optimizer that needs a closure, a scheduler that needs a metric, a rate that
            stays zero, or nothing to train.
    """
    trained = [row for row in pair.setup.weights.rows if not row.source.buffer]
    count = sum(math.prod(row.destination.shape) for row in trained)
    if count > MOST:
        pair.judge.note(
            f"step optimizer left out: {count:,} trained numbers, {MOST:,} at most; its rule "
            "does not depend on the size: compare a small configuration of the model"
        )
        return None
    from align.pair.update_sides import UpdateSides  # two dumps need no framework

    sides = UpdateSides(pair)
    ours, judge = sides.step()
    comparisons = list(judge.compare(ours))
    controls = [
        judged_control(fault, judge.compare(trace), "the optimizer's own steps")
        for fault, trace in _wrong_updates(ours, pair.dtype)
    ]
    absent = f"; {sides.feed.absent} has no gradient in step 2" if sides.feed.absent else ""
    note = (
        f"{sides.steps} steps with drawn gradients, one without; the global norm is that of the "
        f"recorded gradients, {ours.norms[1]:.0e} in step 2 and {ours.norms[-1]:.0e} in the "
        f"last{absent}; of a tensor above {SAMPLE:,} elements that many are drawn"
    )
    stamps = {"ours": ours.stamp, "reference": judge.reference.stamp}
    result = step_result(pair, "optimizer", comparisons, controls, note=note, stamps=stamps)
    return result, _wrong_settings(pair, sides, ours, judge, comparisons)


def _wrong_updates(ours: SideTrace, dtype: str) -> Iterator[tuple[str, SideTrace]]:
    """Planted in what was recorded of Paddle's optimizer, of the parameter that it moves most."""
    names = [n for n, t in ours.main.items() if t.is_member]
    if not names:
        return
    name = max(names, key=lambda n: float(np.abs(ours.main[n].update(0)).max()))
    surely = _SURE * ROOM * float(np.finfo(dtype).eps)
    trace = copy.copy(ours.main[name])
    first, *later = trace.weights
    off = _SHARE * trace.update(0) + surely * float(np.abs(first).max())
    trace.weights = [first, *(weights - off for weights in later)]
    yield f"first update of {name} 1 % off", _replaced(ours, "main", name, trace)
    still = copy.copy(ours.still[name])
    first, after = still.weights
    still.weights = [first, after - max(_SHARE * still.rates[0], surely) * first]
    yield f"{name} decays more in Paddle", _replaced(ours, "still", name, still)
    frozen = copy.copy(ours.main[name])
    frozen.rates = [math.nan] * frozen.steps
    yield f"{name} not in the optimizer", _replaced(ours, "main", name, frozen)


def _replaced(ours: SideTrace, part: str, name: str, trace: ParameterTrace) -> SideTrace:
    return dataclasses.replace(ours, **{part: {**getattr(ours, part), name: trace}})


def _wrong_settings(
    pair: AnyPair,
    sides: UpdateSides,
    ours: SideTrace,
    judge: UpdateJudge,
    comparisons: list[Comparison],
) -> list[Divergence]:
    """One for every setting that differs, with the first comparison that shows it."""
    failed = [c for c in comparisons if not c.passed]
    if not failed:
        return []
    wrong = _wrong(ours, judge.reference, failed)
    factories = pair.plan.optimizer
    source = "" if isinstance(factories, Mapping) else place_of(factories[1])
    from align.explain.optimizer_causes import Cause, explain  # with both frameworks

    causes = explain(sides, ours, judge, wrong) or [Cause("", tuple(wrong), tuple(wrong))]
    divergences = []
    for cause in causes:
        shown = next((c for c in failed if c.name.partition("/")[2] in cause.names), failed[0])
        divergences.append(
            Divergence(
                shown.name, cause.place, "optimizer", pair.dtype, shown.reason, cause.text, source
            )
        )
    return divergences


def _wrong(ours: SideTrace, reference: SideTrace, failed: list[Comparison]) -> list[str]:
    """Paddle's names of the parameters that are out of tolerance, in the model's order."""
    titles = {comparison.name for comparison in failed}
    wrong = {title.partition("/")[2] for title in titles}
    for name, trace in reference.main.items():
        other = ours.main.get(name, trace)
        if MEMBERS in titles and trace.is_member != other.is_member:
            wrong.add(name)
        rates_agree = np.allclose(trace.rates, other.rates, 1e-9, 0)
        if RATES in titles and trace.is_member and not rates_agree:
            wrong.add(name)
    return [name for name in reference.main if name in ours.main and name in wrong]
