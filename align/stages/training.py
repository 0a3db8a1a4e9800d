"""The stage ``training``: optimizer steps on both sides, judged while the weights are there.

The reference's final tensors wait in a store; the run that measures the noise and Paddle's own run
are compared with them tensor by tensor, straight from the live model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np

from align.explain import locate, rate_causes
from align.judge import bounds, drift
from align.judge.bounds import Settling
from align.judge.comparator import compare_arrays, within
from align.judge.drift import FIRST, driven
from align.judge.judging import each, largest
from align.judge.noise_band import Find, Kinds
from align.pair.pair import STATE, Pair, TrainingRuns, in_paddle, tensor_title
from align.record.arrays import Lazy, TrainingRun
from align.record.request import exchanged
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.stages.stages import judged_control, step_result

AVERAGES = "average"
"""Kind of the tensors of a moving average."""
_SHARE = 0.01  # by how much the control changes a weight


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
        series["drift"] = judge.curves()
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
        self.plan = pair.plan
        self.runs, self.reference, self._oracle = runs, runs.reference, runs.oracle
        weights, self._dtype = pair.setup.weights, pair.dtype
        self._expected = in_paddle(weights, self.reference)
        self._judged = None if self._oracle is None else _float64(in_paddle(weights, self._oracle))
        rows, names = weights.rows, weights.paddle_names
        self._statistics = {row.destination.name for row in rows if row.source.buffer}
        self._sizes = {names[r.destination.name]: math.prod(r.destination.shape) for r in rows}
        self._empty = {row.destination.name for row in rows if 0 in row.destination.shape}
        self._base = bounds.training(pair.dtype, pair.pooled, len(self.reference.losses))
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
        if name.startswith(drift.NAME):
            step = name.rpartition(" ")[2]
            return lambda spreads: spreads.get(("drift", step))
        kind, _, tensor = name.rpartition("/")
        return self._find_tensor(kind or "state", tensor)

    def scale(self, name: str) -> float | None:
        """The largest value of the kind of a comparison, None for the weights."""
        return self._scales.get(name.rpartition("/")[0])

    def everything(self, run: TrainingRun) -> Iterator[Comparison]:
        """Rates, losses, then every tensor, by their floors."""
        paddle_kinds = {STATE: run.state, **run.moments}
        kinds = dict.fromkeys([*self._expected, *paddle_kinds])
        yield self.rates(run.learning_rates)
        yield self.losses(run.losses)
        yield from chain(*(self.of_kind(kind, paddle_kinds.get(kind, {})) for kind in kinds))

    def of_kind(self, kind: str, ours: Mapping[str, np.ndarray]) -> Iterator[Comparison]:
        """Every tensor of a kind; weights that rounding drives by how far a run can go."""
        comparisons = self.tensors(kind, ours)
        if kind:
            return comparisons
        firsts = (self._judged or self._expected).get(FIRST, {})
        return driven(comparisons, firsts, self.reference.learning_rates)

    def drift(self, ours: TrainingRun) -> list[Comparison]:
        """The sampled weights after each step by their floors; [] where they are not known."""
        steady = self.runs.steady
        return drift.compare(ours, self.reference, self._oracle, steady, self._base)

    def settle(self, comparisons: list[Comparison], drifts: list[Comparison]) -> list[Comparison]:
        """Everything, judged by the band where a floor was missed; the drift is one comparison."""
        settled = self.settling.settle([*comparisons, *drifts])
        names = {comparison.name for comparison in drifts}
        self.drifts = [comparison for comparison in settled if comparison.name in names]
        rest = [comparison for comparison in settled if comparison.name not in names]
        after = [drift.judged(self.drifts)] if self.drifts else []
        return [*rest[:2], *after, *rest[2:]]

    def curves(self) -> dict[str, list[float]]:
        """The drift by step, and what is allowed."""
        return {
            "paddle": [comparison.worst for comparison in self.drifts],
            "allowed": [comparison.bound for comparison in self.drifts],
        }

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
        """The final tensors of one kind; ``only`` some of them."""
        sides = (ours, self._expected.get(kind, {}), (self._judged or {}).get(kind, {}))
        names = [name for name in (only or sides[1]) if name not in self._empty]
        if kind:
            names += [name for name in ours if name not in sides[1]]
        a, b, o = (_titled(kind, side, names) for side in sides)
        rule = self._base if kind else self._rule
        yield from each(a, b, None if self._judged is None else o, rule, self._scales.get(kind))

    def _rule(self, name: str) -> Tolerance:
        """The training rule; running statistics have their own."""
        if name in self._statistics:
            return bounds.TOLERANCES["statistics", self._dtype]
        return self._base

    def one_percent_off(self, run: TrainingRun, judged: Sequence[Comparison]) -> list[Comparison]:
        """The largest tensor whose floor is lower with an error of 1 %, by that floor."""
        bounds_of = {comparison.name: comparison.bound for comparison in judged}
        shown = [name for name in run.state if bounds_of.get(name, 1.0) < _SHARE / 2]
        name = max(shown, key=lambda tensor: self._sizes.get(tensor, 0), default=None)
        if name is None:
            return []
        return list(self.tensors(STATE, {name: run.state[name] * (1 + _SHARE) + _SHARE}, [name]))


def _float64(kinds: Kinds) -> Kinds:
    """An oracle's arrays, whole numbers included, as the comparator expects them."""

    def cast(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        return arrays[name].astype(np.float64, copy=False)

    return {
        kind: Lazy({name: partial(cast, arrays, name) for name in arrays})
        for kind, arrays in kinds.items()
    }


def _titled(kind: str, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> Lazy:
    """Some arrays under their full titles."""
    present = [name for name in names if name in arrays]
    return Lazy({tensor_title(kind, n): partial(arrays.__getitem__, n) for n in present})


def _controls(
    judge: TrainingJudge, run: TrainingRun, wrong: Sequence[Comparison]
) -> list[ControlResult]:
    """Faults that this very run must catch."""
    rates = run.learning_rates
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
        faults[what] = [drift.judged([*judge.drifts[:-1], within(away, last.bound)])]
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
    places = {"losses": "loss", "learning rates": "schedule", drift.NAME: "weights"}
    place = places.get(first.name) or first.name.rpartition("/")[2]
    reasons = [first.reason, *(c.reason for c in result.failures if c.name == drift.NAME)]
    reason = "; ".join(dict.fromkeys(reasons))
    if place == "schedule":
        cause = rate_causes.explain(*(np.asarray(side) for side in rates.values()))
    elif first.name.startswith(f"{AVERAGES}/"):
        place, cause = first.name, ""
    else:
        cause = locate.running_statistic(pair, first.name)
    cause = cause or first.hint
    return [Divergence(first.name, place, "training", result.dtype, reason, cause)]
