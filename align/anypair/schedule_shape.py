"""A learning-rate curve read as a warm-up and a decay: the numbers behind it, and the curve back.

Nothing is assumed about who made the curve: every number is fitted, and a description counts only
when the curve that it makes is the one that was read.

Legend: x (N,) = the rate of each step; t = step, from 0; W = warm-up steps, maybe a fraction.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

EXACT = 1e-10  # of the peak: what a description may leave
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
DEPENDS = {
    "step": ("milestones", "factors"),
    "exponential": ("gamma", "floor"),
    "inverse time": ("gamma",),
    "inverse square root": ("lag",),
    "linear": ("end", "floor"),
    "polynomial": ("end", "floor", "power"),
    "cosine": ("lag", "end", "floor", "clamped"),
}
"""Name of a decay -> the numbers beside the peak that its curve depends on."""


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
    falls = np.flatnonzero(np.diff(x) <= 1e-12 * float(np.abs(x).max()))
    top = int(falls[0]) if len(falls) else len(x) - 1
    slope = float(x[max(top - 1, 1)] - x[0]) / max(top - 1, 1) if top else 0.0
    straight = np.abs(x[0] + slope * np.arange(top) - x[:top])
    rise = (
        "linear" if top and straight.max() <= EXACT * np.abs(x).max() else "cosine" if top else ""
    )
    base = Shape(float(x[0]), float(top), rise, float(x[top]))
    if top == len(x) - 1:
        return base if base.makes(x) else None
    return next((s for s in _candidates(x, base, slope) if s.makes(x)), None)


def _candidates(x: np.ndarray, base: Shape, slope: float) -> Iterator[Shape]:
    """A description of each form, the simplest first.

    Args:
        x: (N,) rates.
        base: the warm-up, up to the last step of its rise.
        slope: of a straight rise.
    """
    top = int(base.warmup)
    y = x[top:]
    yield replace(base, decay="constant")
    jumps = np.flatnonzero(np.abs(np.diff(y)) > 1e-12 * np.abs(y).max()) + 1
    if len(jumps) and y[jumps - 1].all() and (len(jumps) == 1 or np.diff(jumps).min() > 1):
        factors = tuple(float(y[i] / y[i - 1]) for i in jumps)
        at = tuple(int(i) + top for i in jumps)
        yield replace(base, decay="step", milestones=at, factors=factors)
    moving = np.flatnonzero(np.abs(y - y[-1]) > 1e-13 * np.abs(y).max())
    used = int(moving[-1]) + 1 if len(moving) else 0  # without the tail at the floor
    tail = len(y) - used > 1
    t, y = np.arange(top, top + used, dtype=np.float64), y[:used]
    if used > 1:
        floor = float(x[-1]) if tail else 0.0
        yield from _straightened(t, y, base, floor, slope)
    if used > 4:
        more = (np.append(t, t[-1] + 1), np.append(y, x[-1])) if tail else (t, y)
        yield from _waves(*more, replace(base, clamped=tail), slope)
    if used > 3:
        yield from _powers(t, y, base, floor, tail)


def _straightened(
    t: np.ndarray, y: np.ndarray, base: Shape, floor: float, slope: float
) -> Iterator[Shape]:
    """Forms of which a function is a straight line: two points give both of its numbers."""

    def line(values: np.ndarray) -> tuple[float, float]:
        b = float(values[-1] - values[0]) / (len(y) - 1)
        return float(values[0]) - b * t[0], b

    a, b = line(y)
    if b < 0:
        meet = (a - base.start) / (slope - b) if base.rise == "linear" and slope > 0 else t[0]
        shape = _with_peak(base, a + b * meet, slope)
        yield replace(shape, decay="linear", end=_whole((floor - a) / b), floor=floor)
    if (y > 0).all():
        _, b = line(np.log(y))
        yield replace(base, decay="exponential", gamma=math.exp(b), floor=floor)
        a, b = line(1 / y**2)
        if b > 0:
            yield replace(base, decay="inverse square root", lag=_whole(a / b))
        a, b = line(1 / y)
        yield replace(base, decay="inverse time", gamma=b * base.peak)


def _whole(value: float) -> float:
    """A fitted number of steps, rounded where it is whole but for the fit."""
    return float(round(value)) if abs(value - round(value)) < 1e-6 else value


def _with_peak(base: Shape, peak: float, slope: float) -> Shape:
    """The warm-up that reaches a peak, which may lie between two steps."""
    if base.rise != "linear" or not slope:
        return base if base.rise else replace(base, peak=peak)
    return replace(base, peak=peak, warmup=_whole((peak - base.start) / slope))


def _waves(t: np.ndarray, y: np.ndarray, base: Shape, slope: float) -> Iterator[Shape]:
    """Half a cosine wave or several, from y[i+s] + y[i-s] = 2 cos(omega s) y[i] + const."""
    stride = max(1, len(y) // 8)
    inner, outer = y[stride:-stride], y[2 * stride :] + y[: -2 * stride]
    centred = inner - inner.mean()
    ratio = float(centred @ (outer - outer.mean())) / (float(centred @ centred) or 1.0) / 2
    optimize = _optimize()
    if not -1 < ratio < 1 or optimize is None:
        return

    def parts(omega: float) -> tuple[np.ndarray, np.ndarray]:
        columns = np.stack([np.ones_like(t), np.cos(omega * t), np.sin(omega * t)], axis=1)
        found = np.linalg.lstsq(columns, y, rcond=None)[0]
        return found, (columns @ found - y) / np.abs(y).max()

    omega = math.acos(ratio) / stride
    fitted = optimize.least_squares(
        lambda v: parts(float(v[0]))[1],
        [omega],
        x_scale=[omega],
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    omega = float(fitted.x[0])
    middle, cosine, sine = (float(v) for v in parts(omega)[0])
    size, origin = math.hypot(cosine, sine), math.atan2(sine, cosine) % (2 * math.pi) / omega
    origin -= 2 * math.pi / omega if origin - t[0] > math.pi / omega else 0.0
    shape = _with_peak(base, middle + size, slope)
    floor = middle - size if abs(middle - size) > EXACT * size else 0.0
    lag, end = _whole(origin - shape.warmup), _whole(origin + math.pi / omega)
    yield replace(shape, decay="cosine", lag=lag, end=end, floor=floor)


def _powers(t: np.ndarray, y: np.ndarray, base: Shape, floor: float, tail: bool) -> Iterator[Shape]:
    """A power of the way that is left: the length is searched, the power follows from it."""
    height = base.peak - floor
    inner = (t > t[0]) & (y > floor) & (y < base.peak)
    optimize = _optimize()
    if not inner.any() or height <= 0 or optimize is None:
        return
    logs, steps = np.log((y[inner] - floor) / height), t[inner] - t[0]

    def power(length: float) -> float:
        ways = np.log1p(-steps / length)
        return float(ways @ logs) / float(ways @ ways)

    def left(log: float) -> np.ndarray:
        length = steps[-1] + math.exp(log)
        return power(length) * np.log1p(-steps / length) - logs

    length = float(t[-1] + 1 - t[0])
    if not tail:
        starts = np.linspace(math.log(1e-3), math.log(100 * steps[-1]), 40)
        start = min(starts, key=lambda v: float((left(v) ** 2).sum()))
        fitted = optimize.least_squares(lambda v: left(float(v[0])), [start], **TIGHT)
        length = _whole(float(steps[-1] + math.exp(fitted.x[0])))
    shape = replace(base, decay="polynomial", end=t[0] + length, floor=floor)
    yield replace(shape, power=round(power(length), 9))


def _optimize():
    """scipy's optimizers; None without it: files of two machines are compared by NumPy alone."""
    if importlib.util.find_spec("scipy") is None:
        return None
    from scipy import optimize

    return optimize
