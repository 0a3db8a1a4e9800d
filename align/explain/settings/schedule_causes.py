"""Why two learning-rate curves differ: an edit after which they agree.

First edits of a curve as a whole, each with at most one number; then the numbers behind both curves
(`schedule_shape`), Paddle's set to PyTorch's. What remains is at most 1e-10 of the peak. NumPy
only; without scipy some decays are not read.

Legend: a (N,) = Paddle's rate of each step, b (N,) = PyTorch's; NaN in an edited curve = unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from align.explain.experiment import Edit, fewest
from align.explain.experiment import explain as first
from align.explain.settings.exchange import both, number
from align.explain.settings.schedule_shape import EXACT, Shape, describe, restarts, rise

TRIALS = 10_000  # comparisons of curves
SHIFTS, TIMES = 2000, 16  # how far a shift is searched, and how many scheduler steps in one
Rates = np.ndarray
Edits = Iterator[Edit[Rates]]

TITLES = {
    "warmup": "warm-up length in steps",
    "start": "the warm-up starts from another value",
    "rise": "the form of the warm-up",
    "peak": "another peak",
    "decay": "the form of the decay",
    "lag": "the decay counts from another step (after the warm-up)",
    "end": "total length: the decay ends at another step",
    "floor": "decays to another floor",
    "power": "the power of the polynomial decay",
    "gamma": "gamma: the factor of each step",
    "milestones": "milestones: the rate drops at other steps",
    "factors": "gamma: each drop multiplies the rate by another factor",
    "clamped": "the rate stays at its floor after the end",
}
"""Number of a shape -> what it is called."""
DECAY = tuple(TITLES)[5:]
"""The numbers of a decay."""


def explain(ours: Rates, reference: Rates) -> str:
    """The likely cause of a difference between two curves.

    Args:
        ours: (N,) Paddle's rates.
        reference: (N,) PyTorch's.

    Returns:
        One sentence with both values, "" when nothing explains the difference.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    if a.shape != b.shape or len(a) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    if np.array_equal(a, b):
        return ""
    found = first(b, _edits(a, b), partial(_same, a), TRIALS)
    told = _restarts(a, b) if found is None else found.cause
    numbers = [] if told else _exchanged(a, b)
    if not told and len(numbers) != 1:
        found = first(b, _stepped(b), partial(_same, a), TRIALS)
        told = "" if found is None else found.cause
    return told or "; ".join(numbers)


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
        yield Edit(f"{names[0]}'s rate never changes ({rate}), {names[1]}'s does", lambda _: a)
    yield from _misread(b, "Paddle", "scheduler()")
    for edit in _misread(a, "PyTorch", "scheduler.get_last_lr()"):
        yield Edit(edit.says, lambda x, edit=edit: a if _same(x, edit.apply(a)) else None)
    yield from _shifted(b, range(1, 2))
    factor = float(a @ b) / (float(b @ b) or 1.0)
    largest = f"at every step (largest: {both(a.max(), b.max())})"
    says = f"constant factor: Paddle's rate is {number(factor)} x PyTorch's {largest}"
    yield Edit(says, lambda x: factor * x if factor else None)
    yield from _shifted(b, range(2, min(len(b) // 2, SHIFTS) + 1))
    yield from _paced(a, b)


def _changes(x: Rates) -> Rates:
    """Steps at which a curve has another rate than at the step before."""
    return np.flatnonzero(np.abs(np.diff(x)) > 1e-12 * np.abs(x).max()) + 1


def _misread(x: Rates, who: str, getter: str) -> Edits:
    """Rounded, or read with a getter that is none."""
    peak = float(x.max()) or 1.0
    single = np.asarray(x.astype(np.float32), np.float64)
    for made, what in (
        (single, "each of them"),
        (x * (float(np.float32(peak)) / peak), "a factor"),
    ):
        if np.abs(made - x).max() > 0:
            yield Edit(f"{who}'s rates are held in float32 ({what})", lambda _, made=made: made)
    shape = describe(x)
    for floor in dict.fromkeys((0.0, float(x.min()), shape.floor if shape else 0.0)):
        before, now = x[:-1] - floor, x[1:] - floor
        usable = np.abs(before) > 1e-2 * np.abs(x).max()  # at its floor a recurrence ends
        ahead = np.where(usable, now**2 / np.where(usable, before, 1.0), np.nan) + floor
        yield Edit(
            f"getter misuse: {who}'s rates are one recurrence ahead (rate x rate / the rate before "
            f"it): scheduler.get_lr() is no getter, it applies the recurrence again; read {getter}",
            lambda x, ahead=ahead: np.append(x[:1], ahead),
        )


def _shifted(b: Rates, steps: range) -> Edits:
    """Some steps late or early as a whole; by one step in the warm-up only."""
    changes, top = _changes(b), rise(b)
    for k in steps:
        gap, count = np.full(k, np.nan), f"{k} step{'s' if k > 1 else ''}"
        for word, made, seen in (
            ("late", np.append(gap, b[:-k]), changes < len(b) - k),
            ("early", np.append(b[k:], gap), changes > k),
        ):
            if seen.sum() >= max(2, len(changes) // 2):
                says = f"shifted by {count}: Paddle's rates come too {word}"
                yield Edit(says, lambda _, made=made: made)
    for word, early in (("next step", b[1 : top + 1]), ("step before", np.append(np.nan, b[:top]))):
        says = f"until step {top} Paddle's rate is PyTorch's of the {word}"
        if 1 < top < len(b) - 2:
            yield Edit(
                f"the warm-up is shifted by 1 step, the rest is not: {says}",
                lambda b, early=early: np.append(early[:top], b[top:]),
            )


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
                    yield Edit(f"{title} rate changes every {k} steps, {how} once in {k} steps",
                               lambda _: a)  # fmt: skip


def _stepped(b: Rates) -> Edits:
    """Paddle's scheduler makes several steps for each one; the rest of its curve is unknown."""
    for k in range(2, TIMES + 1):
        taken = b[::k]
        if len(_changes(taken)) > 2:
            says = f"stepped {k} times per step: Paddle's rate of step t is PyTorch's of step {k} t"
            made = np.append(taken, np.full(len(b) - len(taken), np.nan))
            yield Edit(says, lambda _, made=made: made)


def _restarts(a: Rates, b: Rates) -> str:
    """Rates that start again at other steps and agree until then."""
    mine, theirs = restarts(a), restarts(b)
    if mine == theirs:
        return ""
    at = [f"at steps {', '.join(map(str, s[:4]))}" if s else "never" for s in (mine, theirs)]
    odd = "missing" if not mine else "in Paddle only" if not theirs else "differ"
    end = min((*mine, *theirs))
    told = f"restarts {odd}: Paddle restarts {at[0]}, PyTorch {at[1]}"
    return told if _same(a[:end], b[:end]) else ""


def _exchanged(a: Rates, b: Rates) -> list[str]:
    """The fewest numbers of Paddle's curve that have to be PyTorch's, a sentence for each."""
    shapes = describe(a), describe(b)
    if None in shapes:
        return []
    ours, reference = _same_end(*shapes), _same_end(*reversed(shapes))
    groups = [("warmup",), ("start",), ("rise",), ("peak",)]
    if not (ours.warmup and reference.warmup):
        groups = [("warmup", "start", "rise"), ("peak",)]
    same = ours.decay == reference.decay
    groups += [(name,) for name in DECAY] if same else [("decay", *DECAY)]
    edits = [
        Edit(f"{TITLES[group[0]]}: {both(*(_value(s, group[0]) for s in (ours, reference)))}",
             partial(_with, reference, group)) for group in groups
    ]  # fmt: skip
    found = fewest(ours, edits, lambda s: _same(b, s.curve(len(b))), TRIALS)
    return [edit.says for edit in found]


def _same_end(shape: Shape, other: Shape) -> Shape:
    """A line that would end between two steps ends where the other one does, at another floor."""
    between = np.isfinite(shape.end) and shape.end != round(shape.end)
    if shape.decay != "linear" or other.decay != "linear" or shape.floor or not between:
        return shape
    slope = -shape.peak / (shape.end - shape.warmup)
    return replace(shape, end=other.end, floor=shape.peak + slope * (other.end - shape.warmup))


def _value(shape: Shape, name: str) -> object:
    power = f" of power {number(shape.power)}" if shape.power != 1 else ""
    return f"{shape.decay} decay{power}" if name == "decay" else getattr(shape, name)


def _with(other: Shape, group: tuple[str, ...], shape: Shape) -> Shape:
    """A shape with some numbers of another one."""
    return replace(shape, **{name: getattr(other, name) for name in group})
