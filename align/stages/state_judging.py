"""What two continuations of a moved training are compared in, and within which bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.judge.judging import apart, each, largest
from align.match.renamed import to_paddle
from align.pair.any_pair import AnyPair
from align.pair.state_way import MappingWay
from align.record.results import Comparison
from align.record.stored_arrays import Lazy
from align.record.tolerance import Tolerance
from align.weights.optimizer.optimizer_state import OptimizerState

Kinds = Mapping[str, Mapping[str, np.ndarray]]
"""Kind of tensor -> arrays by name."""

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
        side: "torch" or "paddle".
        kinds: "weights" and each moment.
        steps: updates by weight.
    """

    side: str
    kinds: Kinds
    steps: Mapping[str, int]


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


@dataclass(frozen=True)
class Expected:
    """The reference after the move.

    Attributes:
        plain: in the pair's precision.
        noise: "kind/name" -> how far one unit in the last place of inputs and weights before every
            step moves it by the end, in units of its size; "losses" as well.
        oracle: the same in float64, for a pair in float32.
    """

    plain: Stretch
    noise: Mapping[str, float]
    oracle: Stretch | None = None


def compare(pair: AnyPair, ours: Stretch, expected: Expected, way: str) -> Iterator[Comparison]:
    """Losses, rates, tensors, moments and counts; of a shorter run what both have.

    Args:
        pair: gives mapping and precision.
        ours: the Paddle side.
        expected: the PyTorch side.
        way: what is said before every name.
    """
    at, plain, oracle = ours.length, expected.plain, expected.oracle
    rates = (np.asarray(side) for side in (ours.rates, plain.rates[:at]))
    yield compare_arrays(f"{way}: learning rates", *rates, bounds.RATE)
    base = bounds.training(pair.dtype, pair.setup.pooled, pair.plan.steps + at)
    yield compare_arrays(
        f"{way}: losses",
        np.asarray(ours.losses),
        np.asarray(plain.losses[:at]),
        bounds.rules(base, expected.noise)("losses"),
        oracle=None if oracle is None else np.asarray(oracle.losses[:at]),
    )
    if at not in ours.snapshots or at not in plain.snapshots:
        return
    own, theirs = (kinds_of(pair, run.snapshots[at]) for run in (ours, plain))
    judged = None if oracle is None else kinds_of(pair, oracle.snapshots[at])
    for kind in theirs:
        scale = None if kind == WEIGHTS else largest(theirs[kind].values())
        held = [None if k is None else _titled(way, kind, k[kind]) for k in (own, theirs, judged)]
        rule = _rule(pair, kind, base, expected, theirs, scale)
        yield from each(held[0], held[1], held[2], rule, scale)
    yield from _counts(pair, ours.snapshots[at], plain.snapshots[at], way)


def kinds_of(pair: AnyPair, snapshot: Snapshot) -> Kinds:
    """A snapshot in Paddle's names, each tensor read on access; only what the mapping holds."""
    weights = pair.setup.weights
    if snapshot.side == "torch":
        return {kind: to_paddle(weights, arrays) for kind, arrays in snapshot.kinds.items()}
    known = set(weights.paddle_names.values())
    return {
        kind: Lazy({n: lambda n=n, held=held: held[n] for n in held if n in known})
        for kind, held in snapshot.kinds.items()
    }


def noise_of(pair: AnyPair, moved: Stretch, plain: Stretch) -> dict[str, float]:
    """`Expected.noise` from the two runs."""
    found = {"losses": apart(np.asarray(moved.losses), np.asarray(plain.losses), "l2")}
    kinds, expected = (kinds_of(pair, run.snapshots[run.length]) for run in (moved, plain))
    for kind, arrays in kinds.items():
        for name, array in arrays.items():
            found[f"{kind}/{name}"] = apart(array, expected[kind][name], "l2")
    return found


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


def _rule(
    pair: AnyPair,
    kind: str,
    base: Tolerance,
    expected: Expected,
    reference: Kinds,
    scale: float | None,
) -> Callable[[str, Mapping, Mapping | None], Tolerance]:
    """The rule of a tensor: moments may vanish, running statistics have their own."""
    rows = pair.setup.weights.rows
    statistics = {row.destination.name for row in rows if row.source.buffer}
    drifting = _drifting(pair, reference, expected) if kind == WEIGHTS else {}

    def rule(title: str, expected_one: Mapping, judged: Mapping | None) -> Tolerance:
        name = title.partition("/")[2]
        noise = {title: expected.noise.get(f"{kind}/{name}", 0.0)}
        if kind != WEIGHTS:
            given = (base, noise, expected_one, judged, scale, pair.dtype)
            return bounds.gradient_rules(*given)(title)
        if name in drifting:
            return Tolerance("absolute", float(f"{drifting[name]:.1g}"), _DRIFT)
        return bounds.rules(bounds.STATISTICS[pair.dtype] if name in statistics else base, noise)(
            title
        )

    return rule


def _drifting(pair: AnyPair, reference: Kinds, expected: Expected) -> dict[str, float]:
    """Weights without a gradient in exact arithmetic -> how far apart they may drift.

    Such as the bias of a key, or before a batch normalisation: Adam divides the rounding that
    arrives there by its own size, so that every step may go either way by the learning rate.
    """
    firsts = reference.get("moment1", {})
    floor = bounds.TINY_GRADIENT[pair.dtype] * largest(firsts.values())
    farthest = 2.0 * sum(abs(rate) for rate in expected.plain.rates)
    found = {}
    for name, array in firsts.items():
        if float(np.abs(array).max()) < floor and name in reference[WEIGHTS]:
            size = float(np.linalg.norm(reference[WEIGHTS][name]))
            moved = expected.noise.get(f"{WEIGHTS}/{name}", 0.0) * size
            found[name] = min(farthest, max(bounds.NOISE_FACTOR * moved, floor))
    return found


def _counts(pair: AnyPair, ours: Snapshot, plain: Snapshot, way: str) -> Iterator[Comparison]:
    targets = MappingWay(pair.setup.weights).targets()
    expected = {t: count for name, count in plain.steps.items() for t in targets.get(name, ())}
    if expected:
        counts = ([held.get(n, -1) for n in expected] for held in (ours.steps, expected))
        arrays = (np.asarray(held) for held in counts)
        yield compare_arrays(f"{way}: counts of updates", *arrays, _COUNTS)


def _titled(way: str, kind: str, arrays: Mapping[str, np.ndarray]) -> Lazy:
    """Arrays under their full titles; whole numbers are nothing that a training moves."""
    return Lazy({f"{way}: {kind}/{n}": lambda n=n: arrays[n] for n in arrays})
