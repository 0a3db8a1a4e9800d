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

from align.explain import locate
from align.explain.settings import schedule_causes
from align.judge import bounds, drift
from align.judge.comparator import compare_arrays
from align.judge.judging import each, largest
from align.pair.pair import Pair
from align.pair.training_runs import STATE, Kinds, TrainingRuns, kinds_of, tensor_title
from align.record.arrays import TrainingRun
from align.record.results import Comparison, ControlResult, Divergence, StepResult
from align.record.stored_arrays import Lazy
from align.record.tolerance import Tolerance
from align.record.training_batches import exchanged
from align.stages.stages import judged_control


def training(pair: Pair) -> tuple[StepResult, list[Divergence]]:
    """Losses, rates, drift of the weights, final tensors and moments after the plan's steps.

    Args:
        pair: with an optimizer and a number of steps.

    Returns:
        StepResult with the curves "loss", "learning_rate" and "drift" (Paddle's distance from
        PyTorch after each step, the noise band, and what it allows), and the first divergence.
    """
    judge = TrainingJudge(pair, pair.trainings())
    with judge.runs.ours() as (ours, found):
        comparisons = list(judge.everything(ours, found))
        controls = _controls(judge, ours, found)
    if pair.live:
        controls += _other_order(pair, judge)
    reference = judge.reference
    rates = {"paddle": ours.learning_rates, "pytorch": reference.learning_rates}
    series = {"loss": {"paddle": ours.losses, "pytorch": reference.losses}, "learning_rate": rates}
    if found:
        limits = {"noise band": judge.runs.ahead, "allowed": judge.allowed}
        series["drift"] = {"paddle": found, **limits}
    result = StepResult(
        pair.plan.name,
        "training",
        pair.dtype,
        comparisons,
        controls,
        note=_note(pair, judge, bool(found)),
        series=series,
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )
    return result, _divergences(pair, result, rates)


def _note(pair: Pair, judge: TrainingJudge, drifts: bool) -> str:
    width = f"{judge.runs.band['losses']:.1e} of their size over {pair.plan.steps} steps"
    weights = f", of the weights {max(judge.runs.ahead):.1e}" if drifts else ""
    exchanged = "dropout is on, with the same masks on both sides"
    dropout = exchanged if pair.plan.dropout == "exchange" else "dropout is off on both sides"
    return f"noise band of the losses: {width}{weights}; {dropout}"


class TrainingJudge:
    """Compares a run of the Paddle side with the reference, one quantity at a time.

    Args:
        pair: both sides.
        runs: the reference's runs, and what they say of rounding.
        steps: over which rounding has grown, by default those of the runs.
    """

    def __init__(self, pair: Pair, runs: TrainingRuns, steps: int = 0) -> None:
        self.runs, self.reference, self._oracle = runs, runs.reference, runs.oracle
        weights, self._dtype = pair.setup.weights, pair.dtype
        self._expected = kinds_of(weights, self.reference)
        self._judged = None if self._oracle is None else _float64(kinds_of(weights, self._oracle))
        rows, names = weights.rows, weights.paddle_names
        self._statistics = {row.destination.name for row in rows if row.source.buffer}
        sizes = {names[r.destination.name]: math.prod(r.destination.shape) for r in rows}
        self.widest = max(sizes, key=sizes.__getitem__, default="")
        self._empty = {row.destination.name for row in rows if 0 in row.destination.shape}
        steps = steps or len(self.reference.losses)
        self._base = bounds.training(pair.dtype, pair.setup.pooled, steps)
        self._scales = {
            kind: largest(arrays.values())
            for kind, arrays in kinds_of(weights, self.reference, layout=False).items()
            if kind
        }
        self.allowed = drift.allowed(runs.ahead, self._base)

    def everything(self, run: TrainingRun, found: Sequence[float]) -> Iterator[Comparison]:
        """Rates, losses, drift where it is known, then every tensor."""
        own = {STATE: run.state, **run.moments}
        kinds = dict.fromkeys([*self._expected, *own])
        yield self.rates(run.learning_rates)
        yield self.losses(run.losses)
        if found:
            yield self.drift(found)
        yield from chain(*(self.tensors(kind, own.get(kind, {})) for kind in kinds))

    def rates(self, rates: Sequence[float]) -> Comparison:
        """The learning rates that the steps applied."""
        expected = np.asarray(self.reference.learning_rates)
        return compare_arrays("learning rates", np.asarray(rates), expected, bounds.RATE)

    def losses(self, losses: Sequence[float]) -> Comparison:
        """The loss of every step."""
        oracle = None if self._oracle is None else np.asarray(self._oracle.losses)
        expected, rule = np.asarray(self.reference.losses), self._rule("losses")
        return compare_arrays("losses", np.asarray(losses), expected, rule, oracle=oracle)

    def drift(self, found: Sequence[float]) -> Comparison:
        """The distance of the weights after every step."""
        return drift.judge(found, self.runs.ahead, self._base)

    def tensors(
        self, kind: str, own: Mapping[str, np.ndarray], only: Sequence[str] | None = None
    ) -> Iterator[Comparison]:
        """The final tensors of one kind; ``only`` some of them."""
        sides = (own, self._expected.get(kind, {}), (self._judged or {}).get(kind, {}))
        names = [name for name in (only or sides[1]) if name not in self._empty]
        if kind:
            names += [name for name in own if name not in sides[1]]
        a, b, o = (_titled(kind, side, names) for side in sides)
        scale = self._scales.get(kind)

        def rule(name: str, expected: Mapping, judged: Mapping | None) -> Tolerance:
            if not kind:
                return self._rule(name)
            given = (self._base, self.runs.band, expected, judged, scale, self._dtype)
            return bounds.gradient_rules(*given)(name)

        yield from each(a, b, None if self._judged is None else o, rule, scale)

    def _rule(self, name: str) -> Tolerance:
        """The training rule; running statistics have their own."""
        base = bounds.STATISTICS[self._dtype] if name in self._statistics else self._base
        return bounds.rules(base, self.runs.band)(name)


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
    held = [name for name in names if name in arrays]
    return Lazy({tensor_title(kind, n): lambda n=n: arrays[n] for n in held})


def _controls(
    judge: TrainingJudge, run: TrainingRun, found: Sequence[float]
) -> list[ControlResult]:
    """Faults that this very run must catch."""
    rates = run.learning_rates
    late = [rates[0], *rates[:-1]]
    if late == rates:  # a constant schedule is scaled instead
        late = [rate * 1.001 for rate in rates]
    faults: dict[str, Iterable[Comparison]] = {"a rate one step late": [judge.rates(late)]}
    if found:
        away = [*found[:-1], found[-1] + 2 * judge.allowed[-1]]
        what = "weights twice the allowed drift away after the last step"
        faults[what] = [judge.drift(away)]
    name = judge.widest
    if name in run.state:
        wrong = {name: run.state[name] * 1.01 + 0.01}
        faults["one tensor 1 % off at the end"] = judge.tensors(STATE, wrong, [name])
    return [judged_control(title, comparisons, "the run") for title, comparisons in faults.items()]


def _other_order(pair: Pair, judge: TrainingJudge) -> list[ControlResult]:
    """A run of Paddle on the same batches in another order, where there are several."""
    number, batches = exchanged(pair.plan.batches or ())
    if not number:
        return []
    title = f"batches[0] and batches[{number}] exchanged"
    with pair.trained_ours(plan=dataclasses.replace(pair.plan, batches=batches)) as run:
        found = chain([judge.losses(run.losses)], judge.tensors(STATE, run.state))
        return [judged_control(title, found, "the run")]


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
        cause = schedule_causes.explain(*(np.asarray(side) for side in rates.values()))
    else:
        cause = locate.running_statistic(pair, first.name) if pair.live else ""
    cause = cause or first.hint
    return [Divergence(first.name, place, "training", result.dtype, reason, cause)]
