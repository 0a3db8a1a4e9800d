"""Why two learning-rate curves differ: an edit after which they agree.

First edits of a curve as a whole (`curve_edits`); then the numbers behind both curves
(`schedule_shape`), Paddle's set to PyTorch's. NumPy only; without scipy some decays are not read.

Legend: a (N,) = Paddle's rate of each step, b (N,) = PyTorch's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from align.explain.experiment import Edit, fewest
from align.explain.experiment import explain as first
from align.explain.settings import curve_edits
from align.explain.settings.curve_edits import Rates, same
from align.explain.settings.exchange import both, number
from align.explain.settings.schedule_shape import Shape, describe, restarts

TRIALS = 10_000  # comparisons of curves


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

    def tried(edits) -> str:
        found = first(b, edits(a, b), partial(same, a), TRIALS)
        return "" if found is None else found.cause

    told = tried(curve_edits.edits) or _restarts(a, b)
    numbers = [] if told else _exchanged(a, b)
    if len(numbers) == 1:
        return numbers[0]
    told = told or tried(curve_edits.stepped) or "; ".join(numbers)
    return told or tried(curve_edits.stretched)


TITLES = {
    "warmup": "warm-up length in steps",
    "start": "the warm-up starts from another value",
    "rise": "the form of the warm-up",
    "peak": "another peak",
    "decay": "the form of the decay",
    "lag": "the decay counts from another step",
    "end": "total length: the decay ends at another step",
    "floor": "decays to another floor",
    "power": "the power of the polynomial decay",
    "gamma": "gamma of the {} decay",
    "milestones": "milestones: the rate drops at other steps",
    "factors": "gamma: each drop multiplies the rate by another factor",
    "clamped": "the rate stays at its floor after the end",
}
"""Number of a shape -> what it is called."""
DECAY = tuple(TITLES)[5:]
"""The numbers of a decay."""


def _exchanged(a: Rates, b: Rates) -> list[str]:
    """The fewest numbers of Paddle's curve that have to be PyTorch's, one sentence for each."""
    shapes = describe(a), describe(b)
    if None in shapes:
        return []
    ours, reference = _same_end(*shapes), _same_end(*reversed(shapes))
    groups = {_sentence(group, ours, reference): group for group in _groups(ours, reference)}
    edits = [Edit(says, partial(_with, reference, group)) for says, group in groups.items()]
    found = fewest(ours, edits, lambda s: same(b, s.curve(len(b))), TRIALS)
    return [edit.says for edit in found]


def _restarts(a: Rates, b: Rates) -> str:
    """Ratess that start again at other steps, and agree or are understood until then."""
    mine, theirs = restarts(a), restarts(b)
    if mine == theirs:
        return ""
    end = min((*mine, *theirs))
    at = [f"at steps {', '.join(map(str, s[:4]))}" if s else "never" for s in (mine, theirs)]
    odd = "missing" if not mine else "in Paddle only" if not theirs else "differ"
    sure = same(a[:end], b[:end])
    if not sure and None in (describe(a), describe(b)):
        return ""
    return f"{'' if sure else 'perhaps '}restarts {odd}: Paddle restarts {at[0]}, PyTorch {at[1]}"


def _same_end(shape: Shape, other: Shape) -> Shape:
    """A line that would end between two steps ends where the other one does, at another floor."""
    between = shape.end != round(shape.end) if math.isfinite(shape.end) else False
    if shape.decay != "linear" or other.decay != "linear" or shape.floor or not between:
        return shape
    slope = (shape.floor - shape.peak) / (shape.end - shape.warmup)
    return replace(shape, end=other.end, floor=shape.peak + slope * (other.end - shape.warmup))


def _with(other: Shape, group: tuple[str, ...], shape: Shape) -> Shape:
    """A shape with some numbers of another one."""
    return replace(shape, **{name: getattr(other, name) for name in group})


def _groups(a: Shape, b: Shape) -> list[tuple[str, ...]]:
    """Numbers that belong together; a decay of another form is exchanged as a whole."""
    groups = [("warmup", "start", "rise"), ("peak",)]
    if a.warmup and b.warmup:
        groups = [("warmup",), ("start",), ("rise",), ("peak",)]
    elif not (a.warmup or b.warmup):
        groups = [("peak", "start")]
    if a.decay != b.decay:
        return [*groups, ("decay", *DECAY)]
    return [*groups, *((name,) for name in DECAY)]


def _sentence(group: tuple[str, ...], a: Shape, b: Shape) -> str:
    name = group[0]
    x, y = getattr(a, name), getattr(b, name)
    title = TITLES[name].format(b.decay)
    if name == "warmup" and not (x and y):
        title = "warm-up missing: steps" if not x else "warm-up in Paddle only: steps"
    elif name == "warmup" and abs(x - y) <= 1 + 1e-6:
        title = "warm-up length in steps (warm-up rounding)"
    elif name == "decay":
        powers = (f" of power {number(s.power)}" if s.power != 1 else "" for s in (a, b))
        x, y = (f"{s.decay} decay{p}" for s, p in zip((a, b), powers, strict=True))
    elif name == "lag":
        x, y = x + a.warmup, y + b.warmup
    elif name == "factors" and len(x) == len(y):
        x, y = next(((p, q) for p, q in zip(x, y, strict=True) if abs(p - q) > 1e-9), (x, y))
    elif name == "end" and a.decay == b.decay == "cosine":
        spans = [s.end - s.warmup - s.lag for s in (a, b)]
        ratio = max(spans) / min(spans)
        if abs(ratio - round(ratio)) < 1e-6:
            title, (x, y) = "number of cosine cycles", (max(spans) / span / 2 for span in spans)
    return f"{title}: {both(x, y)}"
