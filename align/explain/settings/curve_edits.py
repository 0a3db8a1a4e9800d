"""A learning-rate curve edited as a whole: held, rounded, misread, scaled, shifted, paced.

Each edit of PyTorch's curve has at most one number, and is a cause when it gives Paddle's: what
remains is at most 1e-10 of the peak. NumPy only.

Legend: a (N,) = Paddle's rate of each step, b (N,) = PyTorch's; NaN in an edited curve = unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from align.explain.experiment import Edit
from align.explain.settings.exchange import both, number
from align.explain.settings.schedule_shape import EXACT, describe, rise

SHIFTS, TIMES = 2000, 16  # how far a shift is searched, and how many scheduler steps in one
Rates = np.ndarray


def same(curve: Rates, edited: Rates) -> bool:
    """Whether what is known of an edited curve is a curve; half of it has to be known."""
    known = np.isfinite(edited)
    if 2 * known.sum() < len(curve):
        return False
    size = max(float(np.abs(curve).max()), float(np.abs(edited[known]).max())) or 1.0
    return bool(np.abs(edited[known] - curve[known]).max() <= EXACT * size)


def edits(a: Rates, b: Rates) -> Iterator[Edit[Rates]]:
    """Edits of PyTorch's curve, the plain ones first; one of Paddle's that gives PyTorch's."""
    for says, made in (
        *_held(a, b),
        *_misread(b, "Paddle"),
        *((says, a) for says, made in _misread(a, "PyTorch") if same(b, made)),
        *_scaled_or_shifted(a, b),
        *_paces(a, b),
        *((says, a) for says, made in _paces(b, a, turned=True) if same(b, made)),
    ):
        yield Edit(says, lambda _, made=made: made)


def _changes(x: Rates) -> Rates:
    """Steps at which a curve has another rate than at the step before."""
    return np.flatnonzero(np.abs(np.diff(x)) > 1e-12 * np.abs(x).max()) + 1


def _held(a: Rates, b: Rates) -> Iterator[tuple[str, Rates]]:
    """One side's rate stays what it is."""
    still = [not len(_changes(x)) for x in (a, b)]
    if still[0] != still[1]:
        names = ("Paddle", "PyTorch") if still[0] else ("PyTorch", "Paddle")
        rate = number(a[0] if still[0] else b[0])
        yield f"{names[0]}'s rate never changes ({rate}), {names[1]}'s does", a


def _misread(x: Rates, who: str) -> Iterator[tuple[str, Rates]]:
    """A curve rounded, or read with a getter that is none."""
    peak = float(x.max())
    for made, what in (
        (x.astype(np.float32), "each of them is a float32 number"),
        (x * (float(np.float32(peak)) / (peak or 1.0)), "one of their factors is"),
    ):
        if np.abs(made - x).max() > 0:
            yield (
                f"{who}'s rates are held in float32 ({what}): compute them as Python numbers",
                np.asarray(made, np.float64),
            )
    read = "scheduler()" if who == "Paddle" else "scheduler.get_last_lr()"
    shape = describe(x)
    for floor in dict.fromkeys((0.0, float(x.min()), shape.floor if shape else 0.0)):
        before, now = x[:-1] - floor, x[1:] - floor
        usable = np.abs(before) > 1e-2 * np.abs(x).max()  # at its floor a recurrence ends
        ahead = np.where(usable, now**2 / np.where(usable, before, 1.0), np.nan) + floor
        yield (
            f"getter misuse: {who}'s rates are one recurrence ahead (rate x rate / the rate before "
            f"it) while the first one agrees: {who}'s scheduler.get_lr() is no getter, it applies "
            f"the recurrence again; read {read}",
            np.append(x[:1], ahead),
        )


def _scaled_or_shifted(a: Rates, b: Rates) -> Iterator[tuple[str, Rates]]:
    """One factor, or some steps late or early; the nearest shift comes before the factor."""
    factor = float(a @ b) / (float(b @ b) or 1.0)
    alike = bool(factor) and same(a, factor * b)
    scaled = (
        f"constant factor: Paddle's rate is {number(factor)} x PyTorch's at every step (largest: "
        f"{both(a.max(), b.max())})"
    )
    changes, tops = _changes(b), (rise(a), rise(b))
    for k in range(1, min(len(a) // 2, SHIFTS) + 1):
        gap = np.full(k, np.nan)
        for late, made, seen in (
            (True, np.append(gap, b[:-k]), changes < len(b) - k),
            (False, np.append(b[k:], gap), changes > k),
        ):
            if seen.sum() >= max(2, len(changes) // 2):
                text = _shifted(k, late, tops)
                yield (f"perhaps {text}, or {scaled}" if alike else text), made
        if k == 1:
            yield from _warm_up_shifted(a, b, tops[1])
            if alike and b[0] == 0 and tops[1] == len(b) - 1:
                scaled = f"perhaps {scaled}, or another warm-up length: the window ends within it"
            yield scaled, factor * b


def _warm_up_shifted(a: Rates, b: Rates, top: int) -> Iterator[tuple[str, Rates]]:
    for word, early in (("next step", b[1 : top + 1]), ("step before", np.append(np.nan, b[:top]))):
        if 1 < top < len(b) - 2:
            text = (
                f"the warm-up is shifted by 1 step, the rest is not: it starts at "
                f"{both(a[0], b[0])}; until step {top} Paddle's rate is PyTorch's of the {word}"
            )
            yield text, np.append(early[:top], b[top:])


def _shifted(k: int, late: bool, tops: tuple[int, int]) -> str:
    """Words for a shift; one by just the warm-up that one side has is that warm-up."""
    steps = f"{k} step{'s' if k > 1 else ''}"
    if late and tops == (k, 0):
        return f"warm-up in Paddle only: over {steps}, and the decay waits for its end"
    if not late and tops == (0, k):
        return f"warm-up missing: PyTorch warms up over {steps}, the rest is shifted by as many"
    return f"shifted by {steps}: Paddle's rates come too {'late' if late else 'early'}"


def _paces(a: Rates, b: Rates, turned: bool = False) -> Iterator[tuple[str, Rates]]:
    """The scheduler of a is stepped less often than that of b, or more often."""
    t, runs = np.arange(len(b)), np.diff([0, *_changes(a)])
    if len(runs) > 1 and runs[0] > 1 and not np.ptp(runs) and len(_changes(b)) > 1.5 * len(runs):
        k = int(runs[0])
        title = f"per epoch instead of per step: Paddle's rate changes every {k} steps"
        if turned:
            title = f"per step instead of per epoch: PyTorch's rate changes every {k} steps"
        yield f"{title}, the schedule is read once in {k} steps", b[k * (t // k)]
        yield f"{title}, scheduler.step() is called once in {k} steps", b[t // k]


def stepped(a: Rates, b: Rates) -> Iterator[Edit[Rates]]:
    """Paddle's scheduler makes several steps for each one; the rest of its curve is unknown."""
    for k in range(2, TIMES + 1):
        taken = b[::k]
        if len(taken) >= 4 and len(_changes(taken)) > 2 and same(a[: len(taken)], taken):
            says = (
                f"stepped {k} times per step: Paddle's rate of step t is PyTorch's of step {k} t: "
                f"scheduler.step() is called {k} times for each optimizer.step()"
            )
            yield Edit(says, lambda _: a)


def stretched(a: Rates, b: Rates) -> Iterator[Edit[Rates]]:
    """Another floor of a decay of unknown form: the decay stretched about its peak."""
    top, low = int(np.argmax(b)), int(np.argmin(b))
    if top < low:
        share = float((a[low] - a[top]) / (b[low] - b[top]))
        made = np.append(b[:top], b[top] + share * (b[top:] - b[top]))
        yield Edit(f"decays to another floor: {both(a[low], b[low])}", lambda _: made)
