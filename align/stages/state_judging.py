"""What two continuations of a moved training are compared in: a training run, and its counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.judge.judging import each, largest
from align.pair.pair import Pair
from align.pair.state_way import MappingWay
from align.pair.training_runs import STATE, TrainingRuns, noise_between
from align.record.arrays import Distances, TrainingRun
from align.record.results import Comparison
from align.record.stored_arrays import Lazy
from align.record.tolerance import Tolerance
from align.stages.training import TrainingJudge
from align.weights.optimizer.optimizer_state import OptimizerState

WEIGHTS, THERE_AND_BACK = "weights", "there and back"
_BITS = Tolerance("exact", 0.0, "moving a state there and back changes no number")
_COUNTS = Tolerance("exact", 0.0, "a count of updates is right or wrong")
_DRIFT = (
    "no gradient reaches this weight in exact arithmetic, and Adam divides the rounding by its own "
    "size: 32 x its measured noise, at most what the learning rates add up to in both directions"
)


@dataclass(frozen=True)
class Snapshot:
    """What a run holds after some steps, in the names of its side.

    Attributes:
        state: the weights.
        moments: by kind.
        counts: updates by weight.
    """

    state: Mapping[str, np.ndarray]
    moments: Mapping[str, Mapping[str, np.ndarray]]
    counts: Mapping[str, int]


@dataclass
class Stretch:
    """Steps of a run: losses, applied rates, and what it held after some of them."""

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Steps."""
        return len(self.losses)

    def until(self, steps: int) -> TrainingRun:
        """The first steps as a training run; without tensors where no snapshot was taken."""
        held = self.snapshots.get(steps, Snapshot({}, {}, {}))
        run = TrainingRun(self.losses[:steps], self.rates[:steps], stamp=self.stamp)
        run.state, run.moments = held.state, dict(held.moments)
        return run


@dataclass(frozen=True)
class Expected:
    """The reference after the move.

    Attributes:
        plain: in the pair's precision.
        noise: how far one unit in the last place of inputs and weights before every step moves
            each quantity by the end, as of a training run.
        oracle: the same in float64, for a pair in float32.
    """

    plain: Stretch
    noise: Distances
    oracle: Stretch | None = None


class MovedJudge(TrainingJudge):
    """The judge of training; weights that rounding alone moves have a rule of their own.

    Args:
        pair: gives mapping and precision.
        expected: the PyTorch side.
        steps: after the move.
    """

    def __init__(self, pair: Pair, expected: Expected, steps: int) -> None:
        oracle = None if expected.oracle is None else expected.oracle.until(steps)
        runs = TrainingRuns(expected.plain.until(steps), oracle, expected.noise)
        super().__init__(pair, runs, pair.plan.steps + steps)
        self._drifting = self._without_gradient(2.0 * sum(map(abs, expected.plain.rates)))

    def _without_gradient(self, farthest: float) -> Distances:
        """Weights without a gradient in exact arithmetic -> how far apart they may drift.

        Such as the bias of a key, or before a batch normalisation: Adam divides the rounding that
        arrives there by its own size, so that every step may go either way by the learning rate.

        Args:
            farthest: what the rates add up to in both directions.
        """
        firsts = self._expected.get("moment1", {})
        floor = bounds.TINY_GRADIENT[self._dtype] * largest(firsts.values())
        found, weights = {}, self._expected[STATE]
        for name, array in firsts.items():
            if float(np.abs(array).max()) < floor and name in weights:
                size = float(np.linalg.norm(weights[name]))
                moved = self.runs.band.get(name, 0.0) * size
                found[name] = min(farthest, max(bounds.NOISE_FACTOR * moved, floor))
        return found

    def _rule(self, name: str) -> Tolerance:
        if name in self._drifting:
            return Tolerance("absolute", float(f"{self._drifting[name]:.1g}"), _DRIFT)
        return super()._rule(name)


def compare(pair: Pair, ours: Stretch, expected: Expected, way: str) -> Iterator[Comparison]:
    """Losses, rates, tensors, moments and counts; of a shorter run what both have.

    Args:
        pair: gives mapping and precision.
        ours: the Paddle side.
        expected: the PyTorch side.
        way: what is said before every name.
    """
    at, plain = ours.length, expected.plain
    judge, run = MovedJudge(pair, expected, at), ours.until(at)
    yield _named(way, judge.rates(run.learning_rates))
    yield _named(way, judge.losses(run.losses))
    if at not in ours.snapshots or at not in plain.snapshots:
        return
    known = set(pair.setup.weights.paddle_names.values())
    held = {STATE: run.state, **run.moments}
    for kind in (STATE, *plain.snapshots[at].moments):
        own = held[kind]
        own = Lazy({name: partial(own.__getitem__, name) for name in own if name in known})
        for comparison in judge.tensors(kind, own):
            yield _named(way if kind else f"{way}: {WEIGHTS}/", comparison)
    yield from _counts(pair, ours.snapshots[at], plain.snapshots[at], way)


def _named(way: str, comparison: Comparison) -> Comparison:
    space = "" if way.endswith("/") else ": "
    return dataclasses.replace(comparison, name=f"{way}{space}{comparison.name}")


def noise_of(pair: Pair, moved: Stretch, plain: Stretch) -> Distances:
    """`Expected.noise` from the two runs."""
    runs = (run.until(run.length) for run in (moved, plain))
    return noise_between(pair.setup.weights, *runs)


def identical_bits(returned: OptimizerState, state: OptimizerState) -> Iterator[Comparison]:
    """A state that came back against the one that left: the same bits, counts and place."""
    way = THERE_AND_BACK
    arrays = [{f"{way}: {n}": a for n, a in s.arrays().items()} for s in (returned, state)]
    yield from each(arrays[0], arrays[1], None, lambda *_: _BITS, None)
    names = sorted({*returned.steps, *state.steps})
    counts = [
        np.asarray([*(s.steps.get(n, -1) for n in names), s.schedule.position if s.schedule else 0])
        for s in (returned, state)
    ]
    yield compare_arrays(f"{way}: counts and place", *counts, _COUNTS)


def _counts(pair: Pair, ours: Snapshot, plain: Snapshot, way: str) -> Iterator[Comparison]:
    targets = MappingWay(pair.setup.weights).targets()
    expected = {t: count for name, count in plain.counts.items() for t in targets.get(name, ())}
    if expected:
        counts = ([held.get(n, -1) for n in expected] for held in (ours.counts, expected))
        arrays = (np.asarray(held) for held in counts)
        yield compare_arrays(f"{way}: counts of updates", *arrays, _COUNTS)
