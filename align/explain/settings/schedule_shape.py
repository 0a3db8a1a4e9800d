"""A learning-rate curve read as a warm-up and a decay: the numbers behind it, and the curve back.

Nothing is assumed about who made the curve: every number is fitted, and a description counts only
when the curve that it makes is the one that was read.

Legend: x (N,) = the rate of each step; t = step, from 0; W = warm-up steps, maybe a fraction.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

EXACT = 1e-10  # of the peak: what a description may leave
_SCIPY = importlib.util.find_spec("scipy") is not None  # files are compared by NumPy alone
optimize = importlib.import_module("scipy.optimize") if _SCIPY else None
TIGHT = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15)  # as far as rounding allows
JUMP = 0.3  # of the range of the curve: a rise this large in one step is a restart


@dataclass(frozen=True)
class Shape:
    """What a curve is made of.

    Attributes:
        start: rate of step 0.
        warmup: steps until the peak, 0 without; a fraction when the peak lies between two steps.
        rise: "linear", "cosine" or "" (no warm-up).
        peak: rate that the warm-up leads to, and from which the decay starts.
        decay: one of DECAYS; "" when the warm-up fills the whole curve.
        lag: step from which the decay counts, minus `warmup`.
        end: step at which the floor is reached (linear, cosine, polynomial).
        floor: lowest rate.
        power: of the polynomial.
        gamma: factor of each step (exponential), or the slope of inverse time.
        milestones: steps at which the rate drops (step).
        factors: what each drop multiplies by (step).
        clamped: the rate stays at the floor (cosine), instead of rising again.
    """

    start: float
    warmup: float = 0.0
    rise: str = ""
    peak: float = 0.0
    decay: str = ""
    lag: float = 0.0
    end: float = math.inf
    floor: float = 0.0
    power: float = 1.0
    gamma: float = 1.0
    milestones: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()
    clamped: bool = False

    def curve(self, steps: int) -> np.ndarray:
        """The rate of each of so many steps.

        Args:
            steps: N.

        Returns:
            (N,) float64.
        """
        t = np.arange(steps, dtype=np.float64)
        with np.errstate(all="ignore"):
            found = DECAYS[self.decay](self, t)
            if self.warmup > 0:
                share = t / self.warmup
                share = (1 - np.cos(np.pi * share)) / 2 if self.rise == "cosine" else share
                rising = self.start + (self.peak - self.start) * share
                found = np.where(t < self.warmup - 1e-6, rising, found)
        return found

    def makes(self, rates: np.ndarray) -> bool:
        """Whether it is the description of a curve."""
        size = float(np.abs(rates).max()) or 1.0
        return bool(np.abs(self.curve(len(rates)) - rates).max() <= EXACT * size)


def _rest(shape: Shape, t: np.ndarray) -> np.ndarray:
    """The part of the decay that is still ahead: 1 at its start, 0 at its end."""
    origin = shape.warmup + shape.lag
    return 1 - (t - origin) / (shape.end - origin)


def _polynomial(shape: Shape, t: np.ndarray) -> np.ndarray:
    height = shape.peak - shape.floor
    return shape.floor + height * np.clip(_rest(shape, t), 0, None) ** shape.power


def _cosine(shape: Shape, t: np.ndarray) -> np.ndarray:
    rest = _rest(shape, t)
    rest = np.maximum(rest, 0.0) if shape.clamped else rest
    return shape.floor + (shape.peak - shape.floor) * (1 - np.cos(np.pi * rest)) / 2


def _step(shape: Shape, t: np.ndarray) -> np.ndarray:
    if len(shape.milestones) != len(shape.factors):  # one exchanged without the other
        return np.full(t.shape, np.nan)
    found = np.full(t.shape, shape.peak)
    for at, factor in zip(shape.milestones, shape.factors, strict=True):
        found[t >= at] *= factor
    return found


DECAYS: dict[str, Callable[[Shape, np.ndarray], np.ndarray]] = {
    "": lambda s, t: np.full(t.shape, s.peak),
    "constant": lambda s, t: np.full(t.shape, s.peak),
    "step": _step,
    "linear": _polynomial,
    "exponential": lambda s, t: np.maximum(s.floor, s.peak * s.gamma ** (t - s.warmup)),
    "cosine": _cosine,
    "inverse square root": lambda s, t: s.peak * np.sqrt((s.warmup + s.lag) / (t + s.lag)),
    "inverse time": lambda s, t: s.peak / (1 + s.gamma * (t - s.warmup)),
    "polynomial": _polynomial,
}
"""Name of a decay -> its curve from the peak on; the simplest that fits is taken."""
ALONE, PEAK = ((),), ((), ("peak",))
FITTED = {
    "linear": (("end",), PEAK),
    "exponential": (("gamma",), ALONE),
    "cosine": (("lag", "end"), (*PEAK, ("floor",), ("peak", "floor"))),
    "inverse square root": (("lag",), ALONE),
    "inverse time": (("gamma",), ALONE),
    "polynomial": (("end", "power"), ((), ("floor",))),
}
"""Name of a decay -> its numbers, and what has to be fitted beside them if need be."""


def restarts(rates: np.ndarray) -> tuple[int, ...]:
    """Steps at which a curve that had fallen jumps up again.

    Args:
        rates: (N,).
    """
    size = JUMP * float(np.ptp(rates))
    fallen = np.maximum.accumulate(rates) - rates > size
    return tuple(int(i) for i in np.flatnonzero((np.diff(rates) > size) & fallen[:-1]) + 1)


def describe(rates: np.ndarray) -> Shape | None:
    """Reads a curve, up to its first restart.

    Args:
        rates: (N,) finite.

    Returns:
        The shape, None when no description makes this curve.
    """
    x = np.asarray(rates, np.float64)
    x = x[: restarts(x)[0] if restarts(x) else None]
    top = rise(x)
    base = Shape(float(x[0]), float(top), "linear" if top else "", float(x[top]))
    if top > 1 and not replace(base, peak=float(x[0] + top * (x[1] - x[0]))).makes(x[:top]):
        base = replace(base, rise="cosine")
    if top == len(x) - 1:
        return base if base.makes(x) else None
    return next((shape for shape in _candidates(x, base) if shape.makes(x)), None)


def rise(rates: np.ndarray) -> int:
    """Steps of the rise at the beginning of a curve."""
    falls = np.flatnonzero(np.diff(rates) <= 1e-12 * float(np.abs(rates).max()))
    return int(falls[0]) if len(falls) else len(rates) - 1


def _candidates(x: np.ndarray, base: Shape) -> Iterator[Shape]:
    """A description of each form, the simplest first.

    Args:
        x: (N,) rates.
        base: the warm-up, up to the last step of its rise.
    """
    top, size = int(base.warmup), float(np.abs(x).max())
    yield replace(base, decay="constant")
    jumps = np.flatnonzero(np.abs(np.diff(x[top:])) > 1e-12 * size) + top + 1
    if len(jumps) and x[jumps - 1].all() and (len(jumps) == 1 or np.diff(jumps).min() > 1):
        factors = tuple(float(x[i] / x[i - 1]) for i in jumps)
        at = tuple(int(i) for i in jumps)
        yield replace(base, decay="step", milestones=at, factors=factors)
    moving = np.flatnonzero(np.abs(x - x[-1]) > 1e-13 * size)
    used = int(moving[-1]) + 1 if len(moving) else 0  # without the tail at the floor
    tail = len(x) - used > 1
    base = replace(base, end=float(used), floor=float(x[-1]) if tail else 0.0, clamped=tail)
    for decay, (names, beside) in FITTED.items() if optimize is not None else ():
        start = replace(base, decay=decay, gamma=float(x[top + 1] / x[top]) if x[top] else 1.0)
        starts = [start, replace(start, lag=-float(top))] if top and decay == "cosine" else [start]
        for more, one in itertools.product(beside, starts):
            if used - top > len(names) + len(more):
                yield _fitted(x, one, (*names, *more), top)


def _fitted(x: np.ndarray, start: Shape, names: tuple[str, ...], top: int) -> Shape:
    """Some numbers of a shape by least squares over its decay; whole numbers come out whole."""
    scales = {"peak": start.peak or 1.0, "floor": start.peak or 1.0, "end": float(len(x))}
    slope = float(x[1] - x[0]) if start.rise == "linear" else 0.0

    def made(values: np.ndarray) -> Shape:
        found = {n: float(v) * scales.get(n, 1.0) for n, v in zip(names, values, strict=True)}
        if "peak" in found and slope:
            found["warmup"] = (found["peak"] - start.start) / slope
        return replace(start, **found)

    def left(values: np.ndarray) -> np.ndarray:
        apart = (made(values).curve(len(x)) - x)[top:] / (np.abs(x).max() or 1.0)
        return np.nan_to_num(apart, nan=1e3, posinf=1e3, neginf=-1e3)

    first = [getattr(start, n) / scales.get(n, 1.0) for n in names]
    shape = made(optimize.least_squares(left, first, x_scale="jac", max_nfev=60, **TIGHT).x)
    whole = {
        n: float(round(getattr(shape, n)))
        for n in ("warmup", "lag", "end")
        if math.isfinite(getattr(shape, n))
    }
    rounded = replace(shape, **whole)
    return rounded if rounded.makes(x) else shape
