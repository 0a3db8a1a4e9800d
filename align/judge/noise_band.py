"""How far rounding alone moves a tensor, measured on the reference, and what follows.

The reference runs again with its inputs, its weights and the result of every operator moved by a
unit in the last place (`align.frameworks.moved_roundings`): a planted move is u = 2**-23 of a
number (2**-52 in float64), its natural rounding u / 4 in the mean square. E_k is the error of run k
against the centre, D_k its max or L2 norm, s the root mean square of the D_k. The centre is the
float64 run of the reference; of a pair in float64 it is the reference itself, because nothing is
more exact. Paddle's distance D is one more draw, made by other kernels.

A tensor passes at the first of these bounds that D meets:

1. its floor, and KERNELS times the distance of PyTorch's own float32 run, a draw that is there;
2. KERNELS * s of FEW moved runs;
3. factor(v) * s of RUNS moved runs, the FEW among them.

No run is made before a tensor misses the bound above it, and every run measures all tensors.

v, the effective number of independent directions of the error, comes from the angles between the
runs: for Gaussian errors the mean of cos(E_i, E_j)**2 is 1 / v (1 for a single number, or for one
direction that carries the whole error; small for a tensor of many). With Satterthwaite's
approximation (D / s)**2 is then F distributed with v and RUNS * v degrees of freedom (v = 1: the
square of Student's t). Its quantile fails right code with a probability of FALSE_ALARM for each
tensor, and by the union bound at most N * FALSE_ALARM for a suite of N, however they depend. A
bound that is met earlier only lowers that: who fails has missed the third.

What it costs in detection: the first is met by no more than KERNELS natural draws, which lie inside
KERNELS moved ones. The FEW runs are among the RUNS, so their s is at most sqrt(RUNS / FEW) = 1.7
times the s of all: a difference beyond 7 times the final s never passes early.

KERNELS is the least factor. The F distribution presumes that Paddle's kernels scatter as the moved
ones do: the moved runs form their sums as the kernels do that round most, one term after the other
(`align.frameworks.long_sums`).

A jump where rounding decides the side of a kink is no such error: the runs take both sides, see
`kinks`. Ties of a maximum or an order are not treated: where rounding decides them, right code may
fail.

A tensor that is zero in exact arithmetic (the bias of a key, a bias before a normalisation) is all
rounding: its own size says nothing. Where the bound exceeds its size, it is judged by its largest
difference in units of the largest value of its kind, of which rounding must not explain more than
CEILING.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from align.judge.comparator import Settle, within
from align.judge.distance import CEILING
from align.judge.kinks import next_run
from align.judge.spread import FEW, RUNS, Errors, Spread, Spreads, read, stored
from align.record.arrays import Arrays
from align.record.moved_run import MovedRun
from align.record.recording import Recording
from align.record.results import Comparison
from align.record.stored_arrays import Lazy, paths_of

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
Moved = Callable[[MovedRun], contextlib.AbstractContextManager[Kinds]]
"""Makes a moved run, to be looked at in a ``with`` block."""
Find = Callable[[Spreads], Spread | None]
"""Picks what belongs to a tensor; None where nothing is known."""


class NoiseBand:
    """What rounding explains of every tensor; runs are made when the answer depends on them.

    Args:
        centre: hands out the arrays that the moved runs are compared with.
        moved: makes a moved run with the same kinds and names.
    """

    def __init__(self, centre: Callable[[], Kinds], moved: Moved) -> None:
        self._centre, self._moved = centre, moved
        self._made: list[MovedRun] = []
        self._errors: dict[tuple[str, str], Errors] = {}
        self._spreads: Spreads = {}
        self.runs = 0

    @classmethod
    def stored(cls, arrays: Mapping[str, np.ndarray]) -> NoiseBand:
        """A band from what `to_store` handed out; all of its runs are made."""
        band = cls(dict, lambda _: contextlib.nullcontext({}))
        band._spreads, band.runs = read(arrays), RUNS
        return band

    def to_store(self) -> Arrays:
        """The band as arrays by "kind/name", after all RUNS runs."""
        return stored(self.measured(RUNS))

    def measured(self, runs: int) -> Spreads:
        """What at least so many runs say; those that are missing are made."""
        if self.runs < runs:
            centre = self._centre()
            for _ in range(self.runs, runs):
                run = next_run(self._made)
                with self._moved(run) as kinds:
                    self._add(kinds, centre)
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

    def of(self, kind: str) -> Settle:
        """Settles comparisons whose names are those of a kind of arrays.

        A distance of 1 and more, that of a tensor of zeros, is no rounding.
        """

        def settle(one: Comparison) -> Comparison:
            if one.worst >= 1.0:
                return one
            return self.settle(one, lambda spreads: spreads.get((kind, one.name)))

        return settle

    def settle(
        self,
        one: Comparison,
        find: Find,
        *,
        widest: float = CEILING,
        zero_scale: float | None = None,
    ) -> Comparison:
        """Judge a failed comparison by the moved runs, of which as few as possible are made.

        Args:
            one: a comparison; only a measured distance of kind "scaled" or "band" is settled.
            find: picks the spread of its tensor.
            widest: a wider band judges nothing, and the reason says so.
            zero_scale: the largest value of its kind, where the tensor may be zero in exact
                arithmetic.
        """
        measured = one.tolerance.kind in ("scaled", "band") and math.isfinite(one.worst)
        if one.passed or not measured:
            return one
        judged = one
        for runs in (FEW, RUNS):
            spread = find(self.measured(runs))
            if spread is None:
                break
            judged = _judged(one, spread, widest, zero_scale)
            if judged.passed:
                break
        return judged


def kinds_of(recording: Recording) -> Kinds:
    """What the noise band measures of a pass of the reference, in PyTorch's names."""
    taps, gradients = Lazy(), Lazy()
    for call in recording.calls.values():
        for i, path in enumerate(paths_of(call.outputs)):
            taps.hold(f"{call.key}[{path}]", lambda c=call, i=i: c.outputs[i][1])
        for path in call.grad_outputs:
            read = functools.partial(call.grad_outputs.__getitem__, path)
            gradients.hold(f"{call.key}[{path}]", read)
    inputs = {f"input {path}": value for path, value in recording.input_gradients.items()}
    return {
        "taps": taps,
        "gradients at taps": gradients,
        "gradients": recording.gradients,
        "inputs": {"loss": recording.loss, **inputs},
        "state": recording.state,
    }


def _judged(one: Comparison, spread: Spread, widest: float, zero_scale: float | None) -> Comparison:
    """The comparison within what rounding explains."""
    rule = one.tolerance
    if rule.kind != "band":
        rule = dataclasses.replace(rule, kind="band", why=rule.why + BY_BAND)
    norm = "l2" if one.unit == "L2 norm" else "max"
    share = spread.allowed(norm) / one.scale
    if share > widest and zero_scale and one.unit != "zero_scale":
        share = spread.allowed("max") / zero_scale
        worst = one.max_abs / zero_scale
        one = dataclasses.replace(one, worst=worst, scale=zero_scale, unit="zero_scale")
        widest = CEILING
    bound = rule.bias + max(rule.value, share)
    if share <= widest:
        return within(one, bound, rule)
    reason = (
        f"rounding alone moves PyTorch's own tensor so far that {bound:.2e} of the scale would "
        f"have to be allowed, which proves nothing: {ILL_CONDITIONED}"
    )
    return dataclasses.replace(
        one, passed=False, bound=bound, tolerance=rule, reason=reason, hint=""
    )
