"""Why two learning-rate curves differ: an edit after which they agree.

Edits of PyTorch's curve, each with at most one number; nothing is assumed of its form. What remains
is at most 1e-10 of the peak, 1e-3 where a curve is read between its steps. NumPy only; without
scipy a length is coarse.

Legend: a (N,) = Paddle's rate of each step, b (N,) = PyTorch's; NaN in an edited curve = unknown.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from align.explain.experiment import Edits, first_cause, fitted
from align.explain.settings.exchange import both, number

TRIALS = 10_000  # comparisons of curves
EXACT, NEAR = 1e-10, 1e-3  # of the peak: what an edit may leave, and one read between steps
ALIKE, FEW = 0.5, 4  # correlation that a guess needs, changes that show a recurrence
RESTART = 0.5  # of the range of a curve: a rise in one step that begins it again
SHIFTS, TIMES = 2000, 16  # how far a shift is searched, and how many scheduler steps in one
Rates = np.ndarray


def explain(ours: Rates, reference: Rates) -> str:
    """What makes two curves differ, with both values; "" when nothing explains it.

    Args:
        ours: (N,) Paddle's rates.
        reference: (N,) PyTorch's.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    if a.shape != b.shape or len(a) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    if np.array_equal(a, b):
        return ""
    with np.errstate(all="ignore"):
        told = first_cause(_edits(a, b), partial(_same, a), TRIALS) or _warped(a, b)
        return told or first_cause(_ended(a, b), partial(_same, a), TRIALS) or _guess(a, b)


def _same(curve: Rates, edited: Rates) -> bool:
    """Whether what is known of an edited curve is a curve; enough of it has to be known."""
    known = np.isfinite(edited)
    if known.sum() < max(4, len(curve) // TIMES):
        return False
    size = max(float(np.abs(curve).max()), float(np.abs(edited[known]).max())) or 1.0
    return bool(np.abs(edited[known] - curve[known]).max() <= EXACT * size)


def _edits(a: Rates, b: Rates) -> Edits:
    """Edits of PyTorch's curve, the plain ones first; some of Paddle's that give PyTorch's."""
    held = [not len(_changes(x)) for x in (a, b)]
    if held[0] != held[1]:
        names = ("Paddle", "PyTorch") if held[0] else ("PyTorch", "Paddle")
        rate = number(a[0] if held[0] else b[0])
        yield f"{names[0]}'s rate never changes ({rate}), {names[1]}'s does", a
    yield from _misread(b, a, "Paddle", "scheduler()")
    for says, made in _misread(a, b, "PyTorch", "scheduler.get_last_lr()"):
        yield says, a if _same(b, made) else None
    yield from _shifted(b, range(1, 2))
    yield from _warm_up_shifted(b)
    factor = float(a @ b) / (float(b @ b) or 1.0)
    largest = f"at every step (largest: {both(a.max(), b.max())})"
    says = f"constant factor: Paddle's rate is {number(factor)} x PyTorch's {largest}"
    yield says, factor * b if factor else None
    yield from _shifted(b, range(2, min(len(b) // 2, SHIFTS) + 1))
    yield from _paced(a, b)
    yield from _restarted(a, b)
    yield from _stepped(b) if rise(b) > 1 else ()  # else it is a matter of the length


def _changes(x: Rates) -> Rates:
    """Steps at which a curve has another rate than at the step before."""
    return np.flatnonzero(np.abs(np.diff(x)) > 1e-12 * np.abs(x).max()) + 1


def _misread(x: Rates, read: Rates, who: str, getter: str) -> Edits:
    """Rounded, or read with a getter that is none."""
    peak = float(x.max()) or 1.0
    single = np.asarray(x.astype(np.float32), np.float64)
    for made in (single, x * (float(np.float32(peak)) / peak)):
        if np.abs(made - x).max() > 0:
            yield f"{who}'s rates are held in float32", made
    before, now = x[:-1], x[1:]
    bent = 2 * now - read[1:] - before
    at = int(np.argmax(np.abs(bent)))
    fitted_floor = float((now[at] ** 2 - read[1:][at] * before[at]) / (bent[at] or 1.0))
    for floor in (0.0, fitted_floor) if len(_changes(x)) > FEW else (0.0,):
        usable = np.abs(before - floor) > 1e-2 * np.abs(x).max()  # at its floor a recurrence ends
        ahead = np.where(usable, (now - floor) ** 2 / (before - floor), np.nan) + floor
        says = (
            f"getter misuse: {who}'s rates are one recurrence ahead (rate x rate / the rate before "
            f"it): scheduler.get_lr() is no getter, it applies the recurrence again; read {getter}"
        )
        yield says, np.append(x[:1], ahead)


def _along(b: Rates, steps: np.ndarray) -> Rates:
    """PyTorch's curve read at other steps, NaN where it has none."""
    return np.interp(steps, np.arange(len(b)), b, np.nan, np.nan)


def _shifted(b: Rates, steps: range) -> Edits:
    """Some steps late or early as a whole."""
    t, changes = np.arange(len(b)), _changes(b)
    for k in steps:
        count = f"{k} step{'s' if k > 1 else ''}"
        for word, read, seen in (
            ("late", t - k, changes < len(b) - k),
            ("early", t + k, changes > k),
        ):
            if seen.sum() >= max(2, len(changes) // 2):
                yield f"shifted by {count}: Paddle's rates come too {word}", _along(b, read)


def _warm_up_shifted(b: Rates) -> Edits:
    """One step late or early until the peak only."""
    t, top = np.arange(len(b)), rise(b)
    for word, read in (("next step", t + 1), ("step before", t - 1)):
        says = f"until step {top} Paddle's rate is PyTorch's of the {word}"
        if 1 < top < len(b) - 2:
            made = np.where(t < top, _along(b, read), b)
            yield f"the warm-up is shifted by 1 step, the rest is not: {says}", made


def _paced(a: Rates, b: Rates) -> Edits:
    """The scheduler of one side is stepped less often."""
    t = np.arange(len(b))
    for slow, fast, title in (
        (a, b, "per epoch instead of per step: Paddle's"),
        (b, a, "per step instead of per epoch: PyTorch's"),
    ):
        runs = np.diff([0, *_changes(slow)])
        often = len(_changes(fast)) > 1.5 * len(runs)
        if len(runs) > 1 and runs[0] > 1 and not np.ptp(runs) and often:
            k = int(runs[0])
            for at, how in ((k * (t // k), "the schedule is read"), (t // k, "it is stepped")):
                if _same(slow, fast[at]):
                    says = f"{title} rate changes every {k} steps, {how} once in {k} steps"
                    yield says, a


def _stepped(b: Rates) -> Edits:
    """Paddle's scheduler makes several steps for each one; the rest of its curve is unknown."""
    for k in range(2, TIMES + 1):
        if len(_changes(b[::k])) > 2:
            says = f"stepped {k} times per step: Paddle's rate of step t is PyTorch's of step {k} t"
            yield says, _along(b, k * np.arange(len(b)))


def _restarted(a: Rates, b: Rates) -> Edits:
    """A decay that begins again on one side; on the other it goes back up, or stays down."""
    for ours, theirs, mine, other in ((a, b, "Paddle", "PyTorch"), (b, a, "PyTorch", "Paddle")):
        jumps = np.flatnonzero(np.diff(theirs) > RESTART * np.ptp(theirs)) + 1
        if not len(jumps):
            continue
        period, t = int(jumps[0]), np.arange(len(theirs))
        back, says = (
            t % (2 * period),
            f"restarts: {other}'s decay begins again after {period} steps",
        )
        triangle = np.where(back < period, back, 2 * period - back)
        for made, goes in (
            (np.where(triangle == period, np.nan, theirs[triangle % period]), "goes back up"),
            (np.where(t < period, theirs, ours[-1]), "stays where it ends"),
        ):
            yield f"{says}, {mine}'s {goes}", a if _same(ours, made) else None


def _ended(a: Rates, b: Rates) -> Edits:
    """Another rate at the beginning of the warm-up, at the end of the decay."""
    top, peak = rise(b), float(b.max())
    for title, part, values in (
        ("the warm-up starts from another value", slice(0, top), (a[0], b[0])),
        ("decays to another floor", slice(top, None), (a[top:].min(), b[top:].min())),
    ):
        own, theirs = a[part] - peak, b[part] - peak
        share = float(own @ theirs) / (float(theirs @ theirs) or 1.0)
        made = b.copy()
        made[part] = peak + share * theirs
        yield f"{title}: {both(*values)}", made


def _warped(a: Rates, b: Rates) -> str:
    """Another length of the warm-up, of the decay: PyTorch's curve along another time."""
    (top, own_top), t = (rise(b), rise(a)), np.arange(len(b), dtype=float)
    moving = np.flatnonzero(np.abs(b - b[-1]) > 1e-12 * np.abs(b).max())
    end, size = int(moving[-1]) + 2 if len(moving) else len(b), float(np.abs(b).max())
    end = min(end, len(b))

    def made(pace: float) -> Rates:
        return _along(
            b, np.where(t < own_top, t * top / max(own_top, 1), top + pace * (t - own_top))
        )

    def apart(log: float) -> float:
        return float(np.nanmax(np.abs(made(np.exp(log)) - a)))

    same = float(np.log((end - top) / max(end - own_top, 1)))
    log = same if apart(same) <= NEAR * size else fitted(apart, -1.0, 1.0)
    own_end = own_top + (end - top) / float(np.exp(log))
    if apart(log) > NEAR * size or abs(own_end - round(own_end)) > 0.01:
        return ""
    told = [f"warm-up length in steps: {both(own_top, top)}"] if own_top != top else []
    pace = float(np.exp(log))
    slopes = np.diff(b)
    falling = abs(slopes[-1]) > 0.2 * np.abs(slopes[top:]).max() and b[-1] + 2 * slopes[-1] > 0
    if end == len(b) and round(own_end) != end and falling:
        told.append(_unended(a, b, pace))
    elif round(own_end) != end:
        told.append(f"total length: the decay ends at another step: {both(round(own_end), end)}")
    return "; ".join(told)


def _unended(a: Rates, b: Rates, pace: float) -> str:
    """How fast Paddle's decay goes where PyTorch's outlasts the curve; where straight ones end."""
    says = f"the decay goes {number(round(pace, 6))} times as fast as PyTorch's"
    ends = [len(x) - 1 - x[-1] / np.diff(x)[-1] for x in (a, b)]
    straight = all(np.ptp(np.diff(x[len(x) // 2 :])) < 1e-9 * x.max() for x in (a, b))
    if straight and all(abs(end - round(end)) < 0.01 for end in ends):
        says += f", which ends at another step: {both(*map(round, ends))}"
    return f"{says}; perhaps its scheduler is stepped too often, or has another total length"


def _guess(a: Rates, b: Rates) -> str:
    """The first thing that both curves show where no edit explains them."""
    if np.corrcoef(a, b)[0, 1] < ALIKE:
        return ""
    if rise(a) != rise(b):
        return f"perhaps warm-up length in steps: {both(rise(a), rise(b))}"
    if abs(a.max() - b.max()) > NEAR * b.max():
        return f"perhaps another peak: {both(a.max(), b.max())}"
    at = int(np.argmax(np.abs(a - b)))
    return f"perhaps another form of the decay: at step {at} {both(a[at], b[at])}"


def rise(rates: Rates) -> int:
    """Steps of the rise at the beginning of a curve."""
    falls = np.flatnonzero(np.diff(rates) <= 1e-12 * float(np.abs(rates).max()))
    return int(falls[0]) if len(falls) else len(rates) - 1
