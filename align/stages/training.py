"""The stage ``training``: optimizer steps on both sides, judged while the weights are there.

The reference's final tensors wait in a store; the run that measures the noise and Paddle's own run
are compared with them tensor by tensor, straight from the live model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np

from align.explain.locate import running_statistic
from align.frameworks import on_paddle, on_torch
from align.judge import bounds, drift
from align.judge.comparator import compare_arrays
from align.judge.judging import apart, distances, each, largest
from align.match.renamed import to_paddle
from align.pair.any_pair import AnyPair
from align.record.arrays import TrainingRun
from align.record.results import Comparison, ControlResult, Divergence, StepResult
from align.record.stored_arrays import Lazy
from align.record.tolerance import Tolerance
from align.record.training_batches import exchanged
from align.stages.stages import judged_control

STATE = ""
"""Kind of the parameters and buffers; the moments are kinds of their own."""
Kinds = dict[str, Mapping[str, np.ndarray]]


def training(pair: AnyPair) -> tuple[StepResult, list[Divergence]]:
    """Losses, rates, drift of the weights, final tensors and moments after the plan's steps.

    Args:
        pair: with an optimizer and a number of steps.

    Returns:
        StepResult with the curves "loss", "learning_rate" and "drift" (Paddle's distance from
        PyTorch after each step, the noise band, and what it allows), and the first divergence.
    """
    plan, dtype = pair.plan, pair.dtype
    judge = references(pair)
    own = drift.Track(partial(judge.sample.ours, on_paddle))
    with pair.trained_ours(own.watch) as ours:
        found = own.apart(judge.plain, judge.steady)
        comparisons = list(judge.everything(ours, found))
        controls = _controls(judge, ours, found)
    controls += _other_order(pair, judge)
    reference, band = judge.reference, judge.band
    rates = {"paddle": ours.learning_rates, "pytorch": reference.learning_rates}
    result = StepResult(
        plan.name,
        "training",
        dtype,
        comparisons,
        controls,
        note=f"noise band of the losses: {band['losses']:.1e} of their size over {plan.steps} "
        f"steps, of the weights {max(judge.ahead):.1e}; {_dropout(pair)}",
        series={
            "loss": {"paddle": ours.losses, "pytorch": reference.losses},
            "learning_rate": rates,
            "drift": {"paddle": found, "noise band": judge.ahead, "allowed": judge.allowed},
        },
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )
    return result, _divergences(pair, result)


def _dropout(pair: AnyPair) -> str:
    if pair.plan.dropout == "exchange":
        return "dropout is on, with the same masks on both sides"
    return "dropout is off on both sides"


def _kinds(pair: AnyPair, run: TrainingRun, layout: bool = True) -> Kinds:
    """Tensors and moments of a reference run in Paddle's names."""
    weights = pair.setup.weights
    held = {STATE: run.state, **run.moments}
    return {kind: to_paddle(weights, arrays, layout=layout) for kind, arrays in held.items()}


def _noise(pair: AnyPair, moved: TrainingRun, plain: TrainingRun) -> dict[str, float]:
    """How far one unit in the last place before every step moves what a run leaves."""
    band = {"losses": apart(np.asarray(moved.losses), np.asarray(plain.losses), "l2")}
    expected = _kinds(pair, plain, layout=False)
    for kind, arrays in _kinds(pair, moved, layout=False).items():
        found = distances(arrays, expected[kind])
        band.update({_title(kind, name): size for name, size in found.items()})
    return band


def _title(kind: str, name: str) -> str:
    return f"{kind}/{name}" if kind else name


def references(pair: AnyPair) -> TrainingJudge:
    """Train the reference, twice with one unit in the last place between, and in float64.

    Args:
        pair: with an optimizer and a number of steps.

    Returns:
        TrainingJudge: what judges any run of the Paddle side.
    """
    sample = drift.Sample(pair.setup.weights)
    plain, other = (drift.Track(partial(sample.reference, on_torch)) for _ in range(2))
    reference = pair.train_reference(pair.dtype, watch=plain.watch)
    pair.share("training", reference)
    oracle = pair.train_oracle()
    with pair.trained_reference(pair.plan.seed + 1, other.watch) as moved:
        band = _noise(pair, moved, reference)
    steady = sample.steady(plain, other)
    ahead = other.apart(plain, steady)
    return TrainingJudge(pair, reference, oracle, band, sample, plain, steady, ahead)


class TrainingJudge:
    """Compares a run of the Paddle side with the reference, one quantity at a time.

    Args:
        pair: both sides.
        reference: PyTorch's run.
        oracle: its float64 run, for a pair in float32.
        band: how far one unit in the last place moves each quantity.
        sample: the elements of the weights that are followed.
        plain: the reference's, step by step.
        steady: those of them that say something about the drift.
        ahead: the noise band of the drift, by step.
    """

    def __init__(
        self,
        pair: AnyPair,
        reference: TrainingRun,
        oracle: TrainingRun | None,
        band: Mapping[str, float],
        sample: drift.Sample,
        plain: drift.Track,
        steady: np.ndarray,
        ahead: Sequence[float],
    ) -> None:
        self.reference, self._oracle = reference, oracle
        self.band, self.sample, self.plain = band, sample, plain
        self.steady, self.ahead = steady, ahead
        self._dtype = pair.dtype
        self._expected = _kinds(pair, reference)
        self._judged = None if oracle is None else _float64(_kinds(pair, oracle))
        rows = pair.setup.weights.rows
        self._statistics = {row.destination.name for row in rows if row.source.buffer}
        names = pair.setup.weights.paddle_names
        sizes = {names[r.destination.name]: math.prod(r.destination.shape) for r in rows}
        self.widest = max(sizes, key=sizes.__getitem__, default="")
        self._empty = {row.destination.name for row in rows if 0 in row.destination.shape}
        self._base = bounds.training(pair.dtype, pair.setup.pooled, pair.plan.steps)
        self._scales = {
            kind: largest(arrays.values())
            for kind, arrays in _kinds(pair, reference, layout=False).items()
            if kind
        }
        self.allowed = drift.allowed(ahead, self._base)

    def everything(self, run: TrainingRun, found: Sequence[float]) -> Iterator[Comparison]:
        """Rates, losses, drift, then every tensor."""
        own = {STATE: run.state, **run.moments}
        kinds = dict.fromkeys([*self._expected, *own])
        yield self.rates(run.learning_rates)
        yield self.losses(run.losses)
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
        return drift.judge(found, self.ahead, self._base)

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
            given = (self._base, self.band, expected, judged, scale, self._dtype)
            return bounds.gradient_rules(*given)(name)

        yield from each(a, b, None if self._judged is None else o, rule, scale)

    def _rule(self, name: str) -> Tolerance:
        """The training rule; running statistics have their own."""
        base = bounds.STATISTICS[self._dtype] if name in self._statistics else self._base
        return bounds.rules(base, self.band)(name)


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
    return Lazy({_title(kind, n): lambda n=n: arrays[n] for n in held})


def _controls(
    judge: TrainingJudge, run: TrainingRun, found: Sequence[float]
) -> list[ControlResult]:
    """Faults that this very run must catch."""
    rates = run.learning_rates
    late = [rates[0], *rates[:-1]]
    if late == rates:  # a constant schedule is scaled instead
        late = [rate * 1.001 for rate in rates]
    away = [*found[:-1], found[-1] + 2 * judge.allowed[-1]]
    faults = {
        "a rate one step late": [judge.rates(late)],
        "weights twice the allowed drift away after the last step": [judge.drift(away)],
    }
    name = judge.widest
    if name in run.state:
        wrong = {name: run.state[name] * 1.01 + 0.01}
        faults["one tensor 1 % off at the end"] = judge.tensors(STATE, wrong, [name])
    return [judged_control(title, comparisons, "the run") for title, comparisons in faults.items()]


def _other_order(pair: AnyPair, judge: TrainingJudge) -> list[ControlResult]:
    """A run of Paddle on the same batches in another order, where there are several."""
    number, batches = exchanged(pair.plan.batches or ())
    if not number:
        return []
    title = f"batches[0] and batches[{number}] exchanged"
    with pair.trained_ours(plan=dataclasses.replace(pair.plan, batches=batches)) as run:
        found = chain([judge.losses(run.losses)], judge.tensors(STATE, run.state))
        return [judged_control(title, found, "the run")]


def _divergences(pair: AnyPair, result: StepResult) -> list[Divergence]:
    """The first failed comparison; where the weights leave the band is said with it."""
    first = result.first_failure
    if first is None:
        return []
    places = {"losses": "loss", "learning rates": "schedule", drift.NAME: "weights"}
    place = places.get(first.name) or first.name.rpartition("/")[2]
    reasons = [first.reason, *(c.reason for c in result.failures if c.name == drift.NAME)]
    reason = "; ".join(dict.fromkeys(reasons))
    cause = running_statistic(pair, first.name) or first.hint
    return [Divergence(first.name, place, "training", result.dtype, reason, cause)]
