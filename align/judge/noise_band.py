"""How far rounding alone moves a float32 tensor, measured on the reference, and what follows.

The reference runs RUNS times with its inputs, its weights and the result of every operator moved
by a unit in the last place (`align.frameworks.moved_roundings`): a planted move is 2**-23 of a
number, its natural rounding 2**-25 in the mean square. E_k is the error of run k against the
float64 run, D_k its max or L2 norm, s the root mean square of the D_k. Paddle's distance D is one
more draw, made by other kernels. It is judged by ``D <= factor(v) * s``.

v, the effective number of independent directions of the error, comes from the angles between the
runs: for Gaussian errors the mean of cos(E_i, E_j)**2 is 1 / v (1 for a single number, or for one
direction that carries the whole error; small for a tensor of many). With Satterthwaite's
approximation (D / s)**2 is then F distributed with v and RUNS * v degrees of freedom (v = 1: the
square of Student's t). Its quantile fails right code with a probability of FALSE_ALARM for each
tensor, and by the union bound at most N * FALSE_ALARM for a suite of N, however they depend.

KERNELS is the least factor. The F distribution presumes that Paddle's kernels scatter as the moved
ones do. A sum of n products that is formed one after the other scatters by sqrt(n / 6) * 2**-24,
0.2 * sqrt(n) times a moved unit: 4 allows n = 400 even to a kernel without any blocking.

Legend: o = the float64 run of the reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from align.judge.distance import Gap
from align.record.arrays import Arrays

RUNS = 6
FALSE_ALARM = 1e-7
"""Probability with which a tensor of unchanged code fails, at most."""
KERNELS = 4.0
FLOOR = 2.0**-20
"""Part of the tensor's size that always passes: sixteen roundings of half a unit in one direction.
It holds where no move reaches, and saves the moved runs of tensors that are this near."""
CEILING = 2.0**-10
"""A band wider than this judges nothing: the inputs of the case are ill-conditioned."""
ILL_CONDITIONED = "choose better conditioned inputs"
"""How the reason of a comparison ends whose band is wider than that."""
_SAMPLE = 1024  # numbers of a tensor whose errors are kept for the angles

Kinds = Mapping[str, Arrays]
"""Arrays by kind (taps, gradients ...) and name."""
Allowed = Callable[[str, str], float]
"""From a tensor's name and a norm, "max" or "l2", to the distance that rounding explains."""


def factor(directions: float) -> float:
    """How many times s a distance may be.

    Args:
        directions: v, at least 1.
    """
    from scipy import stats  # comparing files of two machines needs NumPy alone

    quantile = stats.f.isf(FALSE_ALARM, directions, RUNS * directions)
    return max(KERNELS, float(quantile) ** 0.5)


class NoiseBand:
    """What rounding explains of every tensor; the runs are made when it is first asked for.

    Args:
        oracle: hands out the arrays of the float64 run.
        moved: hands out those of moved run k, under the same kinds and names.
    """

    def __init__(self, oracle: Callable[[], Kinds], moved: Callable[[int], Kinds]) -> None:
        self._oracle, self._moved = oracle, moved

    def of(self, kind: str) -> Allowed:
        """The distances of the tensors of a kind."""
        return lambda name, norm: self._errors[kind, name].allowed(norm)

    @functools.cached_property
    def _errors(self) -> dict[tuple[str, str], _Errors]:
        """Only distances and samples are kept: a run is freed before the next one."""
        oracle = self._oracle()
        errors = {(kind, name): _Errors() for kind, arrays in oracle.items() for name in arrays}
        for seed in range(RUNS):
            moved = self._moved(seed)
            for kind, name in errors:
                errors[kind, name].add(
                    np.asarray(moved[kind][name]), np.asarray(oracle[kind][name])
                )
        return errors


@dataclass
class _Errors:
    """The errors of the moved runs of one tensor."""

    largest: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    samples: list[np.ndarray] = field(default_factory=list)

    def add(self, moved: np.ndarray, judge: np.ndarray) -> None:
        gap = Gap.between(moved, judge)
        self.largest.append(gap.apart("max"))
        self.length.append(gap.apart("l2"))
        few = _chosen(judge.size)
        picked = (array.reshape(-1)[few].astype(np.float64) for array in (moved, judge))
        self.samples.append(np.subtract(*picked))

    def allowed(self, norm: str) -> float:
        found = np.asarray(self.largest if norm == "max" else self.length)
        return factor(self._directions) * float(np.sqrt(np.mean(found**2)))

    @functools.cached_property
    def _directions(self) -> float:
        """v; 1 where a run has no error at all in the sample, which says nothing of its angle."""
        errors = np.stack(self.samples)
        lengths = np.linalg.norm(errors, axis=1, keepdims=True)
        if not lengths.all():
            return 1.0
        cosines = (errors / lengths) @ (errors / lengths).T
        return 1.0 / float(np.mean(cosines[np.triu_indices(RUNS, 1)] ** 2))


@functools.lru_cache(maxsize=4096)
def _chosen(size: int) -> np.ndarray:
    """The numbers whose errors are kept: all of a small tensor, the same drawn ones of a large."""
    if size <= _SAMPLE:
        return np.arange(size)
    return np.random.default_rng(size).integers(0, size, _SAMPLE)


def bound(worst: float, floor: float, bias: float, allowed: Callable[[], float]) -> float:
    """What a distance may be at most.

    Args:
        worst: the distance, in units of the tensor's size.
        floor: what always passes.
        bias: a difference that is known and derived, beside rounding.
        allowed: what rounding explains, in the same units; not called where the answer is known.

    Returns:
        ``bias + max(floor, allowed())``; ``bias + floor`` where that is met already, ``CEILING``
        for a distance of 1 and more, that of a tensor of zeros.
    """
    if worst <= bias + floor:
        return bias + floor
    if worst >= 1.0:
        return CEILING
    return bias + max(floor, allowed())
