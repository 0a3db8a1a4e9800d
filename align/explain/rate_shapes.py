"""A learning-rate curve read as a warm-up and a decay: the numbers behind it, and the curve back.

Nothing is assumed about who made the curve: every number is fitted, and a description counts only
when the curve that it makes is the one that was read. NumPy only.

Legend: x (N,) = the rate of each step; t = step, from 0; W = warm-up steps, maybe a fraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

EXACT = 1e-10  # of the peak: what a description may leave when it is the true one
JUMP = 0.3  # of the range of the curve: a rise this large in one step is a restart


@dataclass(frozen=True)
class Shape:
    """What a curve is made of.

    Attributes:
        start: rate of step 0.
        warmup: steps until the peak, 0 without; a fraction when the peak lies between two steps.
        rise: "linear", "cosine" or "" (no warm-up).
        peak: rate that the warm-up leads to, and from which the decay starts.
        decay: "constant", "step", "linear", "exponential", "cosine", "polynomial", "inverse square
            root", "inverse time", or "" when the warm-up fills the whole curve.
        lag: step from which the decay counts, minus `warmup`.
        end: step at which the floor is reached (linear, cosine, polynomial).
        floor: lowest rate.
        power: of the polynomial.
        gamma: factor of each step (exponential), or the slope of inverse time.
        drops: steps at which the rate jumps (step).
        factors: what each jump multiplies by (step).
        clamped: the rate stays at the floor (cosine), instead of rising again.
        restarts: steps at which it starts again from the peak; the rest describes the first period.
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
    drops: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()
    clamped: bool = False
    restarts: tuple[int, ...] = ()

    def curve(self, steps: int) -> np.ndarray:
        """The rate of each of so many steps, restarts left out.

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
                if self.rise == "cosine":
                    share = (1 - np.cos(np.pi * share)) / 2
                found = np.where(
                    t < self.warmup - 1e-6, self.start + (self.peak - self.start) * share, found
                )
        return found


def _progress(shape: Shape, t: np.ndarray) -> np.ndarray:
    origin = shape.warmup + shape.lag
    return (t - origin) / (shape.end - origin)


def _polynomial(shape: Shape, t: np.ndarray) -> np.ndarray:
    rest = np.clip(1 - _progress(shape, t), 0, None)
    return shape.floor + (shape.peak - shape.floor) * rest**shape.power


def _cosine(shape: Shape, t: np.ndarray) -> np.ndarray:
    progress = _progress(shape, t)
    progress = np.minimum(progress, 1.0) if shape.clamped else progress
    return shape.floor + (shape.peak - shape.floor) * (1 + np.cos(np.pi * progress)) / 2


def _exponential(shape: Shape, t: np.ndarray) -> np.ndarray:
    return np.maximum(shape.floor, shape.peak * shape.gamma ** (t - shape.warmup))


def _step(shape: Shape, t: np.ndarray) -> np.ndarray:
    found = np.full(t.shape, shape.peak)
    for at, factor in zip(shape.drops, shape.factors, strict=True):
        found[t >= at] *= factor
    return found


def _inverse_root(shape: Shape, t: np.ndarray) -> np.ndarray:
    return shape.peak * np.sqrt((shape.warmup + shape.lag) / (t + shape.lag))


DECAYS: dict[str, Callable[[Shape, np.ndarray], np.ndarray]] = {
    "": lambda shape, t: np.full(t.shape, shape.peak),
    "constant": lambda shape, t: np.full(t.shape, shape.peak),
    "step": _step,
    "linear": _polynomial,
    "exponential": _exponential,
    "cosine": _cosine,
    "polynomial": _polynomial,
    "inverse square root": _inverse_root,
    "inverse time": lambda s, t: s.peak / (1 + s.gamma * (t - s.warmup)),
}
"""Name of a decay -> its curve from the peak on."""


def describe(rates: np.ndarray, near: float) -> Shape | None:
    """Reads a curve.

    Args:
        rates: (N,) finite.
        near: what the description may leave unexplained anywhere.

    Returns:
        The shape, None when no description fits within ``near``.
    """
    restarts = find_restarts(rates)
    x = np.asarray(rates, np.float64)[: restarts[0] if restarts else None]
    peak = float(np.abs(x).max()) or 1.0
    near = max(near, EXACT * peak)
    start, rise, slope = float(x[0]), "", 0.0
    top = _rising(x, peak)
    if top:
        rise, slope = _rise(x[: top + 1], near)
        if not rise:
            return None
    base = Shape(start, float(top), rise, float(x[top]), restarts=restarts)
    if top == len(x) - 1:
        return _within(base, x, near)
    found = []
    for fit in FITS:
        shape = fit(x, replace(base, decay="constant"), slope)
        if shape is not None:
            left = float(np.abs(shape.curve(len(x)) - x).max())
            found.append((left, shape))
    best = min((left for left, _ in found), default=math.inf)
    if not best <= near:
        return None
    return next(shape for left, shape in found if left <= 10 * best + EXACT * peak)


def find_restarts(rates: np.ndarray) -> tuple[int, ...]:
    """Steps at which a curve that had fallen jumps up again.

    Args:
        rates: (N,).
    """
    x = np.asarray(rates, np.float64)
    size = JUMP * float(np.ptp(x)) if len(x) else 0.0
    if size == 0:
        return ()
    fallen = np.maximum.accumulate(x) - x > size
    return tuple(int(i) for i in np.flatnonzero((np.diff(x) > size) & fallen[:-1]) + 1)


def _rising(x: np.ndarray, peak: float) -> int:
    """Index of the top of the initial strict rise, 0 without."""
    falls = np.flatnonzero(np.diff(x) <= 1e-12 * peak)
    return int(falls[0]) if len(falls) else len(x) - 1


def _within(shape: Shape, x: np.ndarray, near: float) -> Shape | None:
    return shape if float(np.abs(shape.curve(len(x)) - x).max()) <= near else None


def _rise(x: np.ndarray, near: float) -> tuple[str, float]:
    """("linear", slope) or ("cosine", 0) for the rising part, ("", 0) for anything else."""
    steps = len(x) - 1
    last = max(steps - 1, 1)
    slope = float(x[last] - x[0]) / last
    if np.abs(x[0] + slope * np.arange(steps) - x[:-1]).max() <= near:
        return "linear", slope
    shape = Shape(float(x[0]), float(steps), "cosine", float(x[-1]))
    return ("cosine", 0.0) if _within(shape, x, near) else ("", 0.0)


def _at_peak(x: np.ndarray, base: Shape, slope: float, peak: float) -> Shape:
    """The shape with the peak that the decay says, and the warm-up that reaches it."""
    top = int(base.warmup)
    if base.rise != "linear" or abs(base.start + slope * top - x[top]) <= 1e-9 * abs(peak):
        return base
    return replace(base, peak=peak, warmup=(peak - base.start) / slope)


def _core(x: np.ndarray, base: Shape) -> tuple[np.ndarray, np.ndarray, int]:
    """Steps and rates of the decay without its constant tail, and the length of that tail."""
    top = int(base.warmup)
    y = x[top:]
    moved = np.flatnonzero(np.abs(y - y[-1]) > 1e-13 * np.abs(y).max())
    used = int(moved[-1]) + 1 if len(moved) else 0
    return np.arange(top, top + used, dtype=np.float64), y[:used], len(y) - used


def _fit_constant(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    return replace(base, decay="constant")


def _fit_step(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    top = int(base.warmup)
    y = x[top:]
    jumps = np.flatnonzero(np.abs(np.diff(y)) > 1e-12 * np.abs(y).max()) + 1
    if not len(jumps) or (len(jumps) > 1 and np.diff(jumps).min() < 2) or (y[jumps - 1] == 0).any():
        return None
    factors = tuple(float(y[i] / y[i - 1]) for i in jumps)
    drops = tuple(int(i) + top for i in jumps)
    return replace(base, decay="step", drops=drops, factors=factors)


def _fit_linear(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    t, y, tail = _core(x, base)
    if len(y) < 2:
        return None
    fall = float(y[0] - y[-1]) / (len(y) - 1)
    if fall <= 0:
        return None
    floor = float(x[-1]) if tail > 1 else 0.0
    peak = base.peak
    if base.rise == "linear" and slope > 0:
        meet = (y[0] + fall * t[0] - base.start) / (slope + fall)
        peak = base.start + slope * meet
    shape = _at_peak(x, base, slope, float(peak))
    end = float(t[0] + (y[0] - floor) / fall)
    return replace(shape, decay="linear", end=end, floor=floor)


def _fit_exponential(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    t, y, tail = _core(x, base)
    if len(y) < 2 or (y <= 0).any():
        return None
    gamma = float((y[-1] / y[0]) ** (1 / (len(y) - 1)))
    return replace(base, decay="exponential", gamma=gamma, floor=float(x[-1]) if tail > 1 else 0.0)


def _fit_cosine(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    t, y, tail = _core(x, base)
    if len(y) < 5:
        return None
    if tail > 1:  # the first step at the floor belongs to the wave as well
        t, y = np.append(t, t[-1] + 1), np.append(y, x[-1])
    omega = _frequency(t, y)
    if omega is None:
        return None
    middle, cosine, sine = _waves(t, y, omega)
    size = math.hypot(cosine, sine)
    turns = math.atan2(sine, cosine) % (2 * math.pi)
    origin = turns / omega
    if origin - t[0] > math.pi / omega:
        origin -= 2 * math.pi / omega
    peak = middle + size
    shape = base
    if base.rise == "linear":
        shape = replace(base, warmup=(peak - base.start) / slope, peak=peak)
    elif not base.rise:
        shape = replace(base, peak=peak)
    lag = origin - shape.warmup
    return replace(
        shape,
        decay="cosine",
        lag=0.0 if abs(lag) < 1e-6 * max(1.0, len(x)) else lag,
        end=origin + math.pi / omega,
        floor=middle - size,
        clamped=tail > 1,
    )


def _waves(t: np.ndarray, y: np.ndarray, omega: float) -> tuple[float, float, float]:
    """Least squares of y = a + b cos(omega t) + c sin(omega t)."""
    columns = np.stack([np.ones_like(t), np.cos(omega * t), np.sin(omega * t)], axis=1)
    found = np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(found[0]), float(found[1]), float(found[2])


def _frequency(t: np.ndarray, y: np.ndarray) -> float | None:
    """Angular frequency of a sampled wave, from y[i+s] + y[i-s] = 2 cos(omega s) y[i] + const."""
    stride = max(1, len(y) // 8)
    inner = y[stride:-stride]
    outer = y[2 * stride :] + y[: -2 * stride]
    centred = inner - inner.mean()
    energy = float(centred @ centred)
    if energy == 0:
        return None
    ratio = float(centred @ (outer - outer.mean())) / energy / 2
    if not -1 < ratio < 1:
        return None
    omega = math.acos(ratio) / stride

    def left(value: float) -> float:
        a, b, c = _waves(t, y, value)
        made = a + b * np.cos(value * t) + c * np.sin(value * t)
        return float(((made - y) ** 2).sum())

    return golden(left, 0.999 * omega, 1.001 * omega)


def _fit_polynomial(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    t, y, tail = _core(x, base)
    if len(y) < 4:
        return None
    floor = float(x[-1]) if tail > 1 else 0.0
    origin, height = t[0], base.peak - floor
    inner = (t > origin) & (y > floor) & (y < base.peak)
    if not inner.any() or height <= 0:
        return None
    logs = np.log((y[inner] - floor) / height)
    steps = t[inner] - origin

    def power(length: float) -> float:
        base_logs = np.log1p(-steps / length)
        return float(base_logs @ logs) / float(base_logs @ base_logs)

    def left(length: float) -> float:
        return float(((power(length) * np.log1p(-steps / length) - logs) ** 2).sum())

    if tail > 1:
        length = float(t[-1] + 1 - origin)
    else:
        low = float(steps[-1]) + 1e-3
        length = math.exp(
            golden(lambda v: left(math.exp(v)), math.log(low), math.log(100 * low), steps=120)
        )
        whole = float(round(length))
        length = whole if whole > steps[-1] and left(whole) <= left(length) + 1e-12 else length
    return replace(base, decay="polynomial", end=origin + length, floor=floor, power=power(length))


def _fit_inverse_root(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    t, y, _ = _core(x, base)
    if len(y) < 3 or (y <= 0).any():
        return None
    rate, offset = np.polyfit(t, 1 / y**2, 1)
    if rate <= 0:
        return None
    lag = float(offset / rate)
    return replace(base, decay="inverse square root", lag=0.0 if abs(lag) < 1e-6 else lag)


def _fit_inverse_time(x: np.ndarray, base: Shape, slope: float) -> Shape | None:
    t, y, _ = _core(x, base)
    if len(y) < 3 or (y <= 0).any():
        return None
    gamma = float((y[0] / y[-1] - 1) / (t[-1] - t[0]))
    return replace(base, decay="inverse time", gamma=gamma)


FITS = (
    _fit_constant,
    _fit_step,
    _fit_linear,
    _fit_exponential,
    _fit_cosine,
    _fit_inverse_root,
    _fit_inverse_time,
    _fit_polynomial,
)
"""From a curve and its warm-up to a whole shape, the simplest first."""


def golden(function: Callable[[float], float], low: float, high: float, steps: int = 80) -> float:
    """The place of the minimum of a function of one number, by golden-section search."""
    share = (math.sqrt(5) - 1) / 2
    a, b = high - share * (high - low), low + share * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(steps):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - share * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + share * (high - low)
            at_b = function(b)
    return (low + high) / 2
