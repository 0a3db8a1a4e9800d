"""What two continuations of a moved training are compared in: a training run, and its counts.

Faults of a move are planted: what a conversion of an optimizer's state is usually got wrong in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from align.judge.bounds import Settling
from align.judge.comparator import compare_arrays
from align.judge.judging import each
from align.judge.noise_band import Kinds, NoiseBand
from align.match.mapping import WeightMapping
from align.pair.pair import STATE, Pair, TrainingRuns, measured_training
from align.pair.state_way import MappingWay
from align.record.arrays import Arrays, TrainingRun
from align.record.results import Comparison, Tolerance
from align.record.stored_arrays import Lazy
from align.stages.training import TrainingJudge
from align.weights.optimizer.optimizer_state import OptimizerState

WEIGHTS, THERE_AND_BACK = "weights", "there and back"
_BITS = Tolerance("exact", 0.0, "moving a state there and back changes no number")
_COUNTS = Tolerance("exact", 0.0, "a count of updates is right or wrong")


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
        band: how far rounding moves each quantity by the end, as of a training run.
        oracle: the same in float64, for a pair in float32.
    """

    plain: Stretch
    band: NoiseBand
    oracle: Stretch | None = None


def compare(pair: Pair, ours: Stretch, expected: Expected, way: str) -> Iterator[Comparison]:
    """Losses, rates, tensors, moments and counts by their floors; of a shorter run what both have.

    Args:
        pair: gives mapping and precision.
        ours: the Paddle side.
        expected: the PyTorch side.
        way: what is said before every name.
    """
    at, plain = ours.length, expected.plain
    oracle = None if expected.oracle is None else expected.oracle.until(at)
    runs = TrainingRuns(plain.until(at), oracle, expected.band)
    judge, run = TrainingJudge(pair, runs, pair.plan.steps + at), ours.until(at)
    yield _named(way, judge.rates(run.learning_rates))
    yield _named(way, judge.losses(run.losses))
    if at not in ours.snapshots or at not in plain.snapshots:
        return
    known = set(pair.setup.weights.paddle_names.values())
    held = {STATE: run.state, **run.moments}
    for kind in (STATE, *plain.snapshots[at].moments):
        own = held[kind]
        own = Lazy({name: partial(own.__getitem__, name) for name in own if name in known})
        for comparison in judge.of_kind(kind, own):
            yield _named(way if kind else f"{way}: {WEIGHTS}/", comparison)
    yield from _counts(pair, ours.snapshots[at], plain.snapshots[at], way)


def _named(way: str, comparison: Comparison) -> Comparison:
    space = "" if way.endswith("/") else ": "
    return dataclasses.replace(comparison, name=f"{way}{space}{comparison.name}")


def measured(run: Stretch) -> Kinds:
    """What the noise band measures of a stretch of the reference, in PyTorch's names."""
    return measured_training(run.until(run.length), None, np.zeros(0, np.int64))


def settling(pair: Pair, expected: Expected) -> Settling:
    """Judges what missed its floor; of a shorter run by what rounding does to the whole.

    Args:
        pair: gives mapping and precision.
        expected: the reference.
    """
    plain = expected.plain.until(expected.plain.length)
    judge = TrainingJudge(pair, TrainingRuns(plain, None, expected.band))

    def own(name: str) -> str:
        return name.partition(": ")[2].removeprefix(f"{WEIGHTS}/")

    return Settling(
        expected.band,
        lambda name: judge.find(own(name)),
        lambda name: judge.scale(own(name)),
        exact=pair.dtype == "float64",
    )


def identical_bits(returned: OptimizerState, state: OptimizerState) -> Iterator[Comparison]:
    """A state that came back against the one that left: the same bits, counts and place."""
    way = THERE_AND_BACK
    arrays = [{f"{way}: {n}": a for n, a in s.arrays().items()} for s in (returned, state)]
    yield from each(arrays[0], arrays[1], None, _BITS, None)
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


@dataclass(frozen=True)
class MoveFault:
    """Something wrong with what Paddle is given.

    Attributes:
        name: for the report.
        plant: (weights, state) in Paddle's names -> wrong ones.
        late: steps by which the schedule is wrongly ahead.
        length: steps after which it must show.
    """

    name: str
    plant: Callable[[Arrays, OptimizerState], tuple[Arrays, OptimizerState]]
    late: int = 0
    length: int = 1


def faults(
    mapping: WeightMapping, state: OptimizerState, rates: list[float], length: int
) -> list[MoveFault]:
    """The faults that this state can have.

    Args:
        mapping: of the weights.
        state: in Paddle's names.
        rates: learning rates after the move.
        length: steps after which most faults are judged.
    """
    found = [
        MoveFault(name, lambda weights, s, wrong=wrong: (weights, wrong(s)), length=length)
        for name, applies, wrong in (
            ("the count of updates lost", bool(state.steps), _uncounted),
            ("moments swapped", "moment2" in state.moments, _swapped),
            ("velocities lost", "velocity" in state.moments, _zeroed),
        )
        if applies
    ]
    square = square_weight(mapping, state)
    if square:
        found.append(
            MoveFault(
                "a square weight's moments not transposed",
                lambda weights, s: (weights, _transposed(s, square)),
                length=length,
            )
        )
    change = next((i for i in range(1, len(rates)) if rates[i] != rates[i - 1]), None)
    if state.schedule is not None and change is not None:
        ahead = max(change, min(length, len(rates)))
        found.append(MoveFault("the schedule one step ahead", lambda w, s: (w, s), 1, ahead))
    if not found:  # plain SGD at a constant rate has no state
        found.append(MoveFault("the weights 1 % off", _off, length=length))
    return found


def square_weight(mapping: WeightMapping, state: OptimizerState) -> str:
    """The largest transposed weight with as many rows as columns that has moments, "" if none."""
    held = next(iter(state.moments.values()), {})
    names = {
        mapping.paddle_names[row.destination.name]
        for row in mapping.rows
        if row.transform.name == "transpose"
    }
    square = [n for n in names if n in held and held[n].ndim == 2 and len(set(held[n].shape)) == 1]
    return max(sorted(square), key=lambda name: held[name].size, default="")


def _uncounted(state: OptimizerState) -> OptimizerState:
    return dataclasses.replace(state, steps=dict.fromkeys(state.steps, 0))


def _swapped(state: OptimizerState) -> OptimizerState:
    other = {"moment1": "moment2", "moment2": "moment1"}
    moments = {kind: state.moments[other.get(kind, kind)] for kind in state.moments}
    moments["moment2"] = {name: abs(array) for name, array in moments["moment2"].items()}
    return dataclasses.replace(state, moments=moments)


def _zeroed(state: OptimizerState) -> OptimizerState:
    moments = {k: {n: 0 * a for n, a in held.items()} for k, held in state.moments.items()}
    return dataclasses.replace(state, moments=moments)


def _transposed(state: OptimizerState, square: str) -> OptimizerState:
    moments = {
        kind: {name: array.T.copy() if name == square else array for name, array in held.items()}
        for kind, held in state.moments.items()
    }
    return dataclasses.replace(state, moments=moments)


def _off(weights: Arrays, state: OptimizerState) -> tuple[Arrays, OptimizerState]:
    return {n: v * 1.01 if v.dtype.kind == "f" else v for n, v in weights.items()}, state
