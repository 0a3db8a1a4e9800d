"""How far rounding alone moves a tensor, measured on the reference, and what follows.

The reference runs again with its inputs, its weights and the result of every operator moved by a
unit in the last place (`align.frameworks.moved_roundings`): 2**-23 of a number, 2**-52 in float64,
four times its natural rounding in the mean square. The error E_k of run k is its difference from
the centre: the float64 run of the reference, or in float64 the reference itself. D_k is its max or
L2 norm, s the root mean square of the D_k. Paddle's distance D is one more draw, made by other
kernels. A tensor passes at the first of these bounds that D meets:

1. its floor, and KERNELS times the distance of PyTorch's own float32 run;
2. KERNELS * s of FEW moved runs;
3. factor(v) * s of RUNS moved runs, the FEW among them.

No run is made before a tensor misses the bound above it, and every run measures all tensors. Only
distances and samples of it are kept, one tensor at a time, and then a `Spread`: a few numbers for
each tensor, which a dump holds as well.

The factor. v, the number of independent directions of the error, comes from the angles between the
runs: for Gaussian errors the mean of cos(E_i, E_j)**2 is 1 / v (1 for a single number, small for a
tensor of many). By Satterthwaite's approximation (D / s)**2 is F distributed with v and RUNS * v
degrees of freedom (v = 1: the square of Student's t). Its quantile fails right code with a
probability of FALSE_ALARM for each tensor, and at most N * FALSE_ALARM for N tensors, however they
depend. KERNELS is the least factor: the moved runs form their sums as the kernels do that round
most, one term after the other. An early bound admits little more: s of FEW of the RUNS is at most
sqrt(RUNS / FEW) = 1.7 times s of all, so a difference beyond 7 times the final s never passes.

Zero. A tensor that is zero in exact arithmetic (the bias of a key, a bias before a normalisation)
is all rounding. Where the bound exceeds its size, it is judged by its largest difference in units
of the largest value of its kind, of which rounding must not explain more than CEILING.

Kinks. A gradient jumps where the argument of a ReLU passes zero. Where rounding decides the side,
all moved runs may fall on one side, and the kernels of another processor on the other. So all but
the last two runs leave samples of the arguments of every kink (two would be too few: they may agree
to a tenth of their error by chance). Of the last two, one takes every argument within KERNELS times
the samples' standard deviation for one above the kink, the other for one below. Each side is then
in one run at least, s at least 1 / sqrt(RUNS) of the jump, and what the band allows KERNELS /
sqrt(RUNS) = 1.6 times the jump or more. Ties of a maximum or an order are not treated: where
rounding decides them, right code may fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.judge.comparator import CEILING, MASK, PIECE, peak, within
from align.record.arrays import Arrays, Lazy, sampled
from align.record.recording import MovedRun, Recording
from align.record.results import Comparison

FEW, RUNS = 2, 6
"""Moved runs that are made first, and at most."""
FALSE_ALARM = 1e-7
"""Probability with which a tensor of unchanged code fails, at most."""
KERNELS = 4.0

Spreads = Mapping[tuple[str, str], "Spread"]
"""(kind, name) -> what the moved runs say of it."""


def factor(directions: float) -> float:
    """How many times the root mean square distance of RUNS runs a distance may be.

    Args:
        directions: v, at least 1.
    """
    low = high = KERNELS**2
    while _exceeds(high, directions) > FALSE_ALARM:
        low, high = high, 2.0 * high
    for _ in range(60 if low < high else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _exceeds(middle, directions) > FALSE_ALARM else (low, middle)
    return high**0.5


def _exceeds(ratio: float, directions: float) -> float:
    """Probability that an F-distributed ratio of v over RUNS v degrees of freedom is larger.

    It is the regularised incomplete beta function I_y(b, a), by its power series at y.
    """
    a, b = directions / 2.0, RUNS * directions / 2.0
    y = b / (b + a * ratio)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(b)
    term = total = math.exp(scale + b * math.log(y) + a * math.log1p(-y))
    count = 0
    while term > 1e-17 * total:
        term *= y * (a + b + count) / (b + 1.0 + count)
        total += term
        count += 1
    return total


ONE_DIRECTION = 29.53
"""`factor` of one direction, Student's t: what holds where nothing is known of the angles."""


@dataclass(frozen=True)
class Spread:
    """What the moved runs say of one tensor.

    Attributes:
        factor: how many times the root mean square distance is allowed.
        largest: root mean square of the runs' largest differences.
        rows: mean of their squared L2 distances, by row of the first axis.
    """

    factor: float
    largest: float
    rows: np.ndarray

    def size(self, norm: str) -> float:
        """Root mean square distance in the "max" or the "l2" norm."""
        return self.largest if norm == "max" else float(np.sqrt(self.rows.sum()))

    def allowed(self, norm: str) -> float:
        """The distance that rounding explains."""
        return self.factor * self.size(norm)

    def part(self, index: int, count: int) -> Spread:
        """One of so many equal parts of the first axis; of its own angles nothing is known."""
        rows = np.split(self.rows, count)[index]
        return Spread(max(self.factor, ONE_DIRECTION), self.largest, rows)


def joined(spreads: Sequence[Spread]) -> Spread:
    """Of tensors that are the pieces of one.

    The squared cosine between two errors of the whole is at most the largest of the pieces': the
    whole has at least as many directions as the piece with the fewest.
    """
    if len(spreads) == 1:
        return spreads[0]
    return Spread(
        max(spread.factor for spread in spreads),
        max(spread.largest for spread in spreads),
        np.concatenate([spread.rows for spread in spreads]),
    )


@dataclass
class Errors:
    """What is kept of the errors of one tensor: largest, squared by row, and some, run by run."""

    largest: list[float] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    samples: list[np.ndarray] = field(default_factory=list)

    def add(self, moved: np.ndarray, centre: np.ndarray) -> None:
        """Take the numbers of one more run."""
        largest, rows = _distances(moved, centre)
        self.largest.append(largest)
        self.rows.append(rows)
        few = sampled(centre.size)
        a, b = (array.reshape(-1)[few].astype(np.float64) for array in (moved, centre))
        self.samples.append(difference(a, b))

    def spread(self) -> Spread:
        """What the runs say so far; the least factor as long as there are not all of them."""
        squares = np.square(self.largest)
        least = len(self.largest) < RUNS
        allowed = KERNELS if least else factor(self._directions())
        return Spread(allowed, float(np.sqrt(squares.mean())), np.mean(self.rows, axis=0))

    def _directions(self) -> float:
        """v; 1 where a run has no error at all in the sample, which says nothing of its angle."""
        errors = np.stack(self.samples)
        lengths = np.linalg.norm(errors, axis=1, keepdims=True)
        if not lengths.all():
            return 1.0
        cosines = (errors / lengths) @ (errors / lengths).T
        return 1.0 / float(np.mean(cosines[np.triu_indices(len(errors), 1)] ** 2))


def _distances(moved: np.ndarray, centre: np.ndarray) -> tuple[float, np.ndarray]:
    """Largest difference, and the squared L2 distance of each row; a scalar is one row."""
    a, b = (array.reshape(array.shape[0] if array.ndim else 1, -1) for array in (moved, centre))
    rows, largest = np.zeros(len(b)), 0.0
    step = max(1, PIECE // b.shape[1])
    for start in range(0, len(b), step):
        a_rows, b_rows = a[start : start + step], b[start : start + step]
        errors = np.abs(difference(a_rows, b_rows))
        largest = max(largest, float(errors.max()))
        rows[start : start + step] = np.einsum("ij,ij->i", errors, errors)
    return largest, rows


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b in float64; zeros for what the comparison itself refuses, or takes for a mask."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.asarray(np.subtract(a, b, dtype=np.float64))
    if np.isfinite(errors).all() and peak(b) <= MASK:
        return errors
    return np.where(np.isfinite(errors) & (np.abs(b) <= MASK), errors, 0.0)


SIDES = {RUNS - 2: 1, RUNS - 1: -1}
"""Number of a moved run -> on which side of a kink it takes what is near: above or below."""


def next_run(runs: Sequence[MovedRun]) -> MovedRun:
    """The moved run that a band makes after those that it has."""
    side = SIDES.get(len(runs), 0)
    if not side:
        return MovedRun(len(runs))
    met: dict[int, list[np.ndarray]] = {}
    for run in runs:
        for at, sample in run.met.items():
            met.setdefault(at, []).append(sample)
    return MovedRun(len(runs), side, {at: _reach(samples) for at, samples in met.items()})


def _reach(samples: Sequence[np.ndarray]) -> float:
    """How far from one kink rounding decides the side of an argument; 0 where that is not known.

    Args:
        samples: (n,) arguments of each run, the same elements in every one.
    """
    if len(samples) < 2 or len({sample.shape for sample in samples}) > 1:
        return 0.0
    errors = difference(np.stack(samples), np.mean(samples, axis=0, dtype=np.float64))
    return KERNELS * float(np.sqrt(np.mean(errors**2) * len(samples) / (len(samples) - 1)))


FLOOR = 2.0**-20
"""Part of a float32 tensor's size that always passes: sixteen roundings of half a unit in one
direction. It holds where no move reaches, and saves the moved runs of tensors this near."""
ILL_CONDITIONED = "choose better conditioned inputs"
"""How the reason of a comparison ends whose band is wider than what would prove anything."""
BY_BAND = (
    f"; or what {FEW} to {RUNS} runs of PyTorch explain whose inputs, weights and roundings are "
    "moved by a unit in the last place"
)

Kinds = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays by kind (taps, gradients ...) and name."""
Moved = Callable[[MovedRun], contextlib.AbstractContextManager[Any]]
"""Makes a moved run, to be looked at in a ``with`` block."""
Find = Callable[[Spreads], Spread | None]
"""Picks what belongs to a tensor; None where nothing is known."""


class NoiseBand:
    """What rounding explains of every tensor; runs are made when the answer depends on them.

    Args:
        centre: gives the run that the moved ones are compared with.
        measure: from a run to the arrays that are compared.
    """

    def __init__(
        self,
        centre: Callable[[], Any],
        moved: Moved,
        measure: Callable[[Any], Kinds] = lambda kinds: kinds,
    ) -> None:
        self._centre, self._moved, self._measure = centre, moved, measure
        self._made: list[MovedRun] = []
        self._errors: dict[tuple[str, str], Errors] = {}
        self._spreads: Spreads = {}
        self.runs = 0

    @classmethod
    def stored(cls, arrays: Mapping[str, np.ndarray]) -> NoiseBand:
        """A band from what `to_store` handed out; all of its runs are made.

        Raises:
            ValueError: an array that `to_store` does not write.
        """
        band = cls(dict, lambda _: contextlib.nullcontext({}))  # never called: no run is missing
        spreads = {}
        for title, array in arrays.items():
            kind, _, name = title.partition("/")
            if array.ndim != 1 or array.size < 3 or not (array >= 0).all():
                raise ValueError(f"noise of {title}: expected a factor, a distance and rows")
            spreads[kind, name] = Spread(float(array[0]), float(array[1]), array[2:])
        band._spreads, band.runs = spreads, RUNS
        return band

    def to_store(self) -> Arrays:
        """The band as arrays by "kind/name", after all RUNS runs."""
        return {
            f"{kind}/{name}": np.concatenate([[spread.factor, spread.largest], spread.rows])
            for (kind, name), spread in self.measured(RUNS).items()
        }

    def measured(self, runs: int) -> Spreads:
        """What at least so many runs say; those that are missing are made."""
        if self.runs < runs:
            centre = self._measure(self._centre())
            for _ in range(self.runs, runs):
                run = next_run(self._made)
                with self._moved(run) as moved:
                    self._add(self._measure(moved), centre)
                self._made.append(run)
            self.runs = runs
            self._spreads = {at: errors.spread() for at, errors in self._errors.items()}
        return self._spreads

    def lower(self) -> bool:
        """Whether the reference computes in a lower precision in places, by one run at least."""
        self.measured(1)
        return any(run.lower for run in self._made)

    def _add(self, kinds: Kinds, centre: Kinds) -> None:
        for kind, arrays in centre.items():
            moved = kinds.get(kind, {})
            for name in arrays:
                if name not in moved:
                    continue
                b, a = np.asarray(arrays[name]), np.asarray(moved[name])
                if a.shape == b.shape and b.size and a.dtype.kind == b.dtype.kind == "f":
                    self._errors.setdefault((kind, name), Errors()).add(a, b)

    def settle(
        self,
        comparison: Comparison,
        find: Find,
        *,
        widest: float = CEILING,
        zero_scale: float | None = None,
    ) -> Comparison:
        """Judge a failed comparison by the moved runs, of which as few as possible are made.

        Args:
            comparison: only a measured distance of kind "scaled" or "band" is settled.
            widest: a wider band judges nothing, and the reason says so.
            zero_scale: the largest value of its kind, where the tensor may be zero in exact
                arithmetic.
        """
        kind, worst = comparison.tolerance.kind, comparison.worst
        if comparison.passed or kind not in ("scaled", "band") or not math.isfinite(worst):
            return comparison
        judged = comparison
        for runs in (FEW, RUNS):
            spread = find(self.measured(runs))
            if spread is None:
                break
            judged = _judged(comparison, spread, widest, zero_scale)
            if judged.passed:
                break
        return judged


def kinds_of(recording: Recording) -> Kinds:
    """What the noise band measures of a pass of the reference, in PyTorch's names."""
    taps, gradients = Lazy(), Lazy()
    for call in recording.calls.values():
        for kind, arrays in ((taps, call.outputs), (gradients, call.grad_outputs)):
            for path in arrays:
                kind.hold(f"{call.key}[{path}]", functools.partial(arrays.__getitem__, path))
    inputs = {f"input {path}": value for path, value in recording.input_gradients.items()}
    return {
        "taps": taps,
        "gradients at taps": gradients,
        "gradients": recording.gradients,
        "inputs": {"loss": recording.loss, **inputs},
        "state": recording.state,
    }


def _judged(
    measured: Comparison, spread: Spread, widest: float, zero_scale: float | None
) -> Comparison:
    """The comparison within what rounding explains."""
    rule = measured.tolerance
    if rule.kind != "band":
        rule = dataclasses.replace(rule, kind="band", why=rule.why + BY_BAND)
    norm = "l2" if measured.unit == "L2 norm" else "max"
    share = spread.allowed(norm) / measured.scale
    if share > widest and zero_scale and measured.unit != "zero_scale":
        share = spread.allowed("max") / zero_scale
        worst = measured.max_abs / zero_scale
        measured = dataclasses.replace(measured, worst=worst, scale=zero_scale, unit="zero_scale")
        widest = CEILING
    bound = rule.bias + max(rule.value, share)
    if share <= widest:
        return within(measured, bound, rule)
    reason = (
        f"rounding alone moves PyTorch's own tensor so far that {bound:.2e} of the scale would "
        f"have to be allowed, which proves nothing: {ILL_CONDITIONED}"
    )
    return dataclasses.replace(
        measured, passed=False, bound=bound, tolerance=rule, reason=reason, hint=""
    )
