"""From two learning-rate curves to the mistake between them, with the fitted numbers as evidence.

A cause is named only when it turns PyTorch's curve into Paddle's: what remains is at most 1 % of
the difference. NumPy only.

Legend: a (N,) = Paddle's rate of each step, b (N,) = PyTorch's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from align.explain.rate_shapes import Shape, describe, find_restarts

LEFT = 0.01  # part of the difference that may remain
FLOAT32 = 1.2e-7  # two roundings to float32
SHIFTS, TIMES = 2000, 16  # how far a shift is searched, and how many scheduler steps in one
_SAME = 1e-5  # fitted numbers this close are equal


def explain(ours: np.ndarray, reference: np.ndarray) -> str:
    """The likely cause of a difference between two curves.

    Args:
        ours: (N,) Paddle's rates.
        reference: (N,) PyTorch's.

    Returns:
        One sentence with its evidence, "" when nothing explains the difference.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    if a.shape != b.shape or len(a) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    apart = float(np.abs(a - b).max())
    if apart == 0:
        return ""
    near = LEFT * apart
    for cause in (_still, _rounded, _drops, _getter, _restarts, _shift, _ramp, _factor, _epochs):
        text = cause(a, b, near)
        if text:
            return text
    shapes = describe(a, near / 2), describe(b, near / 2)
    if None not in shapes:
        text = _shapes(*shapes, a, near, 1) or _faster(a, b, near) or _shapes(*shapes, a, near, 3)
        return text or _all_of(*shapes)
    return _faster(a, b, near) or _affine(a, b, near)


def _number(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-15 else value:.6g}"


def _both(a: float, b: float) -> str:
    return f"Paddle {_number(a)}, PyTorch {_number(b)}"


def _close(a: np.ndarray, b: np.ndarray, near: float) -> bool:
    return len(a) > 0 and a.shape == b.shape and bool(np.abs(a - b).max() <= near)


def _changes(x: np.ndarray) -> np.ndarray:
    """Steps at which a curve has another rate than at the step before."""
    return np.flatnonzero(np.abs(np.diff(x)) > 1e-12 * np.abs(x).max()) + 1


def _still(a: np.ndarray, b: np.ndarray, near: float) -> str:
    sides = {"Paddle": len(_changes(a)), "PyTorch": len(_changes(b))}
    if min(sides.values()) or not max(sides.values()):
        return ""
    name, other = sorted(sides, key=sides.__getitem__)
    held = _number(a[0] if name == "Paddle" else b[0])
    return (
        f"{name}'s rate never changes ({held} at every step), {other}'s does: scheduler.step() is "
        "not called, or the optimizer was built with a number instead of the scheduler"
    )


def _rounded(a: np.ndarray, b: np.ndarray, near: float) -> str:
    with np.errstate(all="ignore"):
        relative = np.where(b != 0, np.abs(a / b - 1), np.where(a == 0, 0.0, np.inf))
    worst = float(relative.max())
    if worst > FLOAT32:
        return ""
    exact = np.array_equal(a.astype(np.float32).astype(np.float64), a)
    every = "each of them is a float32 number" if exact else "one of their factors is"
    return (
        f"Paddle's rates are held in float32 ({every}; at most {worst:.1e} relative from "
        "PyTorch's): compute them as Python numbers"
    )


def _getter(a: np.ndarray, b: np.ndarray, near: float) -> str:
    for name, wrong, right in (("Paddle", a, b), ("PyTorch", b, a)):
        shape = describe(right, near)
        floors = {0.0, float(right.min()), shape.floor if shape else 0.0}
        if any(_applied_again(wrong, right, floor, near) for floor in floors):
            fix = "scheduler()" if name == "Paddle" else "scheduler.get_last_lr()"
            return (
                f"getter misuse: {name}'s rates are one recurrence ahead (rate x rate / the rate "
                f"before it) while the first one agrees: {name}'s scheduler.get_lr() is no getter, "
                f"it applies the recurrence again; read {fix}"
            )
    return ""


def _applied_again(wrong: np.ndarray, right: np.ndarray, floor: float, near: float) -> bool:
    """Whether each value is one recurrence ahead of the right one, the first one excepted."""
    before, now = right[:-1] - floor, right[1:] - floor
    usable = np.abs(before) > 1e-6 * np.abs(right).max()  # at its floor a recurrence ends
    if usable.sum() < 3 or abs(wrong[0] - right[0]) > near:
        return False
    made = floor + now[usable] ** 2 / before[usable]
    return _close(made, wrong[1:][usable], near)


def _restarts(a: np.ndarray, b: np.ndarray, near: float) -> str:
    mine, theirs = find_restarts(a), find_restarts(b)
    if mine == theirs:
        return ""
    first = min((*mine, *theirs))
    shapes = describe(a[:first], near), describe(b[:first], near)
    same = _close(a[:first], b[:first], near)
    if not same and None in shapes:
        return ""

    def listed(steps: tuple[int, ...]) -> str:
        more = ", ..." if len(steps) > 4 else ""
        return "at steps " + ", ".join(map(str, steps[:4])) + more if steps else "never"

    word = "restarts missing" if not mine else "restarts differ"
    word = "restarts in Paddle only" if not theirs else word
    return f"{word}: Paddle restarts {listed(mine)}, PyTorch {listed(theirs)}"


def _drops(a: np.ndarray, b: np.ndarray, near: float) -> str:
    """Two piecewise constant curves whose rates change at other steps or by other factors."""
    shapes = describe(a, near), describe(b, near)
    if any(s is None or s.decay != "step" or s.warmup for s in shapes):
        return ""
    mine, theirs = shapes
    if not _close(replace(theirs, drops=mine.drops, factors=mine.factors).curve(len(a)), a, near):
        return ""
    factors = list(zip(mine.factors, theirs.factors, strict=False))
    if mine.drops == theirs.drops:
        one = factors[int(np.argmax([abs(x - y) for x, y in factors]))]
        return f"gamma: each drop multiplies the rate by another factor: {_both(*one)}"
    moved = {x - y for x, y in zip(mine.drops, theirs.drops, strict=False)}
    each = _interval(mine.drops), _interval(theirs.drops)
    shift = moved.pop() if len(moved) == 1 else 0
    if shift and len(mine.drops) > 1 and len(theirs.drops) > 1:
        return _shifted(shift)
    if len(mine.drops) == len(theirs.drops) == 1:
        return (
            f"step size or milestone: the rate drops at another step: {_both(*each)} (only one "
            f"drop was seen: it may as well be shifted by {_steps(abs(shift))})"
        )
    if None not in each:
        return f"step size: the rate drops every so many steps: {_both(*each)}"
    lists = [", ".join(map(str, drops[:6])) for drops in (mine.drops, theirs.drops)]
    return f"milestones: the rate drops at steps {lists[0]} in Paddle, {lists[1]} in PyTorch"


def _interval(drops: tuple[int, ...]) -> int | None:
    """The step size behind drops at its multiples, None for anything else."""
    size = drops[0]
    return size if all(at == size * (i + 1) for i, at in enumerate(drops)) else None


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"


def _shifted(late: int) -> str:
    word = "late" if late > 0 else "early"
    advice = (
        "it counts one too few: is the first scheduler.step() skipped?"
        if late > 0
        else "it counts one too many: is scheduler.step() called before optimizer.step()?"
    )
    advice = advice if abs(late) == 1 else "the counts of both sides do not start at the same step"
    return f"shifted by {_steps(abs(late))}: Paddle's rates come too {word} ({advice})"


def _shift(a: np.ndarray, b: np.ndarray, near: float) -> str:
    late = _best_shift(a, b, near)
    if not late:
        return ""
    factor = float(a[-1] / b[-1]) if b[-1] else 0.0
    same = factor != 0 and _close(a, factor * b, near)
    if same and late != -1:
        return ""  # a factor says it with less: nothing is special about the first steps
    text = _without_warmup(late, a, b, near) or _shifted(late)
    return text + (f"; here the same as a constant factor of {_number(factor)}" if same else "")


def _best_shift(a: np.ndarray, b: np.ndarray, near: float) -> int:
    """By how many steps Paddle comes late (below 0: early), 0 when no shift explains the curves."""
    changes, best, found = _changes(b), np.inf, 0
    for k in range(1, min(len(a) // 2, SHIFTS) + 1):
        for late, mine, theirs, seen in (
            (k, a[k:], b[:-k], changes < len(b) - k),
            (-k, a[:-k], b[k:], changes > k),
        ):
            probe = slice(None, None, max(1, len(mine) // 16))
            if np.abs(mine[probe] - theirs[probe]).max() > near:
                continue
            left = float(np.abs(mine - theirs).max())
            if left <= near and left < best and seen.sum() >= max(1, len(changes) // 2):
                best, found = left, late
    return found


def _without_warmup(late: int, a: np.ndarray, b: np.ndarray, near: float) -> str:
    """A shift by just the warm-up that one side has and the other has not."""
    shapes = describe(a, near), describe(b, near)
    warm = [0.0 if s is None else s.warmup for s in shapes]
    if late < 0 and not warm[0] and abs(warm[1] + late) < 0.5:
        return (
            f"warm-up missing: Paddle starts at its peak, PyTorch warms up over {-late} steps (the "
            f"rest is shifted by {_steps(-late)})"
        )
    if late > 0 and not warm[1] and abs(warm[0] - late) < 0.5:
        return (
            f"warm-up in Paddle only: over {_steps(late)}, and the decay waits for its end; "
            "PyTorch starts at its peak"
        )
    return ""


def _ramp(a: np.ndarray, b: np.ndarray, near: float) -> str:
    """The warm-up alone is shifted: the same curve after its end."""
    differing = np.flatnonzero(np.abs(a - b) > near)
    end = int(differing[-1]) + 1
    if differing[0] > 1 or end > len(a) - 2 or end < 2 or not (np.diff(b[: end + 1]) > 0).all():
        return ""
    early, late = _close(a[:end], b[1 : end + 1], near), _close(a[1:end], b[: end - 1], near)
    if not (early or late):
        return ""
    other = "next step" if early else "step before"
    return (
        f"the warm-up is shifted by 1 step, the rest is not: it starts at {_both(a[0], b[0])} and "
        f"reaches the common curve at step {end}; until then Paddle's rate is PyTorch's of the "
        f"{other}"
    )


def _factor(a: np.ndarray, b: np.ndarray, near: float) -> str:
    energy = float(b @ b)
    factor = float(a @ b) / energy if energy else 0.0
    if not factor or not _close(a, factor * b, near):
        return ""
    text = (
        f"constant factor: Paddle's rate is {_number(factor)} x PyTorch's at every step (largest: "
        f"{_both(a.max(), b.max())})"
    )
    if (np.diff(b) > 0).all() and b[0] == 0:
        text += "; the window ends within the warm-up: another peak or another warm-up length"
    return text


def _epochs(a: np.ndarray, b: np.ndarray, near: float) -> str:
    """Once per epoch on one side, at every step on the other."""
    mine, theirs = _stairs(a), _stairs(b)
    if mine and not theirs and len(_changes(b)) > 1.5 * len(_changes(a)):
        steps = np.arange(len(a))
        if _close(a, b[mine * (steps // mine)], near):
            how = f"to PyTorch's rate of that step: the schedule is read once in {mine} steps"
        elif _close(a, b[steps // mine], near):
            how = f"to PyTorch's next rate: scheduler.step() is called once in {mine} steps"
        else:
            how = "PyTorch's at every step"
        return f"per epoch instead of per step: Paddle's rate changes every {mine} steps, {how}"
    if theirs and not mine and len(_changes(a)) > 1.5 * len(_changes(b)):
        return (
            f"per step instead of per epoch: Paddle's rate changes at every step, PyTorch's every "
            f"{theirs} steps"
        )
    return ""


def _stairs(x: np.ndarray) -> int:
    """The length of the equal runs that a curve consists of, 0 when it does not."""
    changes = _changes(x)
    if len(changes) < 2:
        return 0
    runs = set(np.diff([0, *changes]).tolist())
    size = runs.pop()
    return int(size) if not runs and size > 1 else 0


def _faster(a: np.ndarray, b: np.ndarray, near: float) -> str:
    for times in range(2, TIMES + 1):
        taken = b[::times]
        if len(taken) >= 4 and len(_changes(taken)) > 2 and _close(a[: len(taken)], taken, near):
            return (
                f"stepped {times} times per step: Paddle's rate of step t is PyTorch's of step "
                f"{times} t: scheduler.step() is called {times} times for each optimizer.step()"
            )
    return ""


def _affine(a: np.ndarray, b: np.ndarray, near: float) -> str:
    """Another floor or peak of a decay of unknown form: a is b stretched about a fixed rate."""
    top = int(np.argmax(b))
    x, y = b[top:], a[top:]
    if len(x) < 4 or not np.ptp(x) or not (top == 0 or _close(a[:top], b[:top], near)):
        return ""
    slope, offset = np.polyfit(x, y, 1)
    if not _close(slope * x + offset, y, near) or abs(slope - 1) < _SAME:
        return ""
    if abs(offset / (1 - slope) - x[0]) < 1e-3 * abs(x[0]):
        return (
            "decays to another floor: where PyTorch's rate is lowest the two have "
            f"{_both(float(y[x.argmin()]), float(x.min()))}; the peak is the same"
        )
    return ""


_DEPENDS = {
    "step": ("drops", "factors"),
    "exponential": ("gamma", "floor"),
    "inverse time": ("gamma",),
    "inverse square root": ("lag",),
    "linear": ("end", "floor"),
    "polynomial": ("end", "floor", "power"),
    "cosine": ("lag", "end", "floor", "clamped"),
}
"""Form of a decay -> the fields beside the peak that its curve depends on."""


def _relevant(a: Shape, b: Shape) -> list[tuple[str, ...]]:
    """Groups of fields in which two shapes differ and that their curves depend on."""
    warm = a.warmup > 0 or b.warmup > 0
    groups = [("warmup",), ("start",), ("rise",)] if warm else []
    if warm and not (a.warmup and b.warmup):
        groups = [("warmup", "start", "rise")]
    groups.append(("peak",) if warm else ("peak", "start"))
    mine, theirs = _DEPENDS.get(a.decay, ()), _DEPENDS.get(b.decay, ())
    if a.decay == b.decay:
        groups += [("drops", "factors")] if a.decay == "step" else [(name,) for name in mine]
    else:
        groups.append(("decay", *(name for name in mine if name not in theirs or name == "power")))
        groups += [(name,) for name in mine if name in theirs and name != "power"]
    size = max(abs(a.peak), abs(b.peak))
    return [
        group
        for group in dict.fromkeys(groups)
        if any(not _equal(getattr(a, name), getattr(b, name), size) for name in group)
    ]


def _equal(x: object, y: object, size: float) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return abs(x - y) <= _SAME * max(abs(x), abs(y)) or max(abs(x), abs(y)) < 1e-9 * size
    return x == y


def _shapes(a: Shape, b: Shape, ours: np.ndarray, near: float, most: int) -> str:
    """The fewest numbers of PyTorch's curve that must be Paddle's to give Paddle's curve."""
    groups = _relevant(a, b)
    if most == 1 and len(groups) == 1:  # nothing else differs
        return _sentence(groups[0], a, b, len(ours))
    for count in range(1, min(most, len(groups)) + 1):
        for chosen in itertools.combinations(groups, count):
            changed = replace(b, **{name: getattr(a, name) for g in chosen for name in g})
            if _close(changed.curve(len(ours)), ours, near):
                return "; ".join(_sentence(group, a, b, len(ours)) for group in chosen)
    return ""


def _all_of(a: Shape, b: Shape) -> str:
    return "; ".join(_sentence(group, a, b, 0) for group in _relevant(a, b))


def _sentence(group: tuple[str, ...], a: Shape, b: Shape, steps: int) -> str:
    return SENTENCES[group[0]](a, b, steps)


def _warmup(a: Shape, b: Shape, steps: int) -> str:
    if not a.warmup:
        return f"warm-up missing: Paddle has none, PyTorch warms up over {_number(b.warmup)} steps"
    if not b.warmup:
        return f"warm-up in Paddle only: over {_number(a.warmup)} steps"
    text = f"warm-up length in steps: {_both(a.warmup, b.warmup)}"
    if abs(a.warmup - b.warmup) <= 1 + 1e-6:
        text += " (warm-up rounding: ceil, floor and the plain fraction differ by up to one step)"
    return text


def _start(a: Shape, b: Shape, steps: int) -> str:
    factors = a.start / a.peak if a.peak else 0.0, b.start / b.peak if b.peak else 0.0
    return (
        f"the warm-up starts from another value: {_both(a.start, b.start)} (start factor: "
        f"{_both(*factors)})"
    )


def _decay(a: Shape, b: Shape, steps: int) -> str:
    names = []
    for shape in (a, b):
        power = f" of power {_number(shape.power)}" if shape.decay == "polynomial" else ""
        names.append(f"{shape.decay or 'no'} decay{power}")
    return f"the form of the decay: Paddle has {names[0]}, PyTorch {names[1]}"


def _end(a: Shape, b: Shape, steps: int) -> str:
    spans = [shape.end - shape.warmup - shape.lag for shape in (a, b)]
    ratio = spans[1] / spans[0]
    if a.decay == b.decay == "cosine" and abs(2 * ratio - round(2 * ratio)) < 1e-4:
        origin = b.warmup + b.lag
        cycles = [max(round((steps - origin) / span), 1) / 2 for span in spans]
        return (
            f"number of cosine cycles: {_both(*cycles)} over these steps (steps of half a "
            f"wave: {_both(*spans)}; a full wave instead of half of one?)"
        )
    length = f"total length: the decay ends at another step: {_both(a.end, b.end)}"
    if a.decay != b.decay or a.decay == "cosine" or a.floor or b.floor:
        return length
    whole = [abs(shape.end - round(shape.end)) < 1e-4 for shape in (a, b)]
    mine, theirs = a.floor, b.floor  # both assumed: neither curve shows its floor
    if a.end > b.end:
        mine = a.peak + (a.floor - a.peak) * (b.end - a.warmup) / spans[0]
    else:
        theirs = b.peak + (b.floor - b.peak) * (a.end - b.warmup) / spans[1]
    floor = f"decays to another floor: {_both(mine, theirs)}"
    first, second = (floor, length) if whole in ([True, False], [False, True]) else (length, floor)
    return f"{first} (or, as neither reaches its floor here, {second})"


def _lag(a: Shape, b: Shape, steps: int) -> str:
    origins = (round(shape.warmup + shape.lag, 4) for shape in (a, b))
    return f"the decay counts from another step: {_both(*origins)} (with or without the warm-up)"


def _step_list(a: Shape, b: Shape, steps: int) -> str:
    lists = [", ".join(map(str, shape.drops[:6])) or "none" for shape in (a, b)]
    if lists[0] == lists[1]:
        return f"gamma: each drop multiplies by another factor: {_both(a.factors[0], b.factors[0])}"
    return f"milestones: the rate drops at steps {lists[0]} in Paddle, {lists[1]} in PyTorch"


SENTENCES: dict[str, Callable[[Shape, Shape, int], str]] = {
    "warmup": _warmup,
    "start": _start,
    "rise": lambda a, b, n: (
        f"the form of the warm-up: Paddle rises {a.rise or 'not'}, PyTorch {b.rise or 'not'}"
    ),
    "peak": lambda a, b, n: f"another peak: {_both(a.peak, b.peak)}",
    "decay": _decay,
    "lag": _lag,
    "end": _end,
    "floor": lambda a, b, n: f"decays to another floor: {_both(a.floor, b.floor)}",
    "power": lambda a, b, n: f"the power of the polynomial decay: {_both(a.power, b.power)}",
    "gamma": lambda a, b, n: f"gamma of the {a.decay} decay: {_both(a.gamma, b.gamma)}",
    "drops": _step_list,
    "clamped": lambda a, b, n: (
        f"after its end {'PyTorch' if a.clamped else 'Paddle'}'s rate rises again, the other stays "
        "at its floor"
    ),
}
"""First field of a group -> its sentence, of Paddle's shape, PyTorch's, and the number of steps."""
