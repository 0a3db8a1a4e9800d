"""Why two learning-rate curves differ: options exchanged in the scheduler, or an edit of a curve.

Edits of PyTorch's curve have at most one number; nothing is assumed of its form. What remains is at
most 1e-10 of the peak.

Legend: a (N,) = Paddle's rate of each step, b (N,) = PyTorch's; NaN in an edited curve = unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from align.explain.experiment import Edits, both, fewest, first_cause, number, options_in_words
from align.frameworks.object_options import differing, options
from align.judge.update_judging import Curve, compare_curves
from sot_paddle.config import some

OPTIONS = 12  # that are exchanged
TRIALS = 10_000  # comparisons of curves
EXACT = 1e-10  # of the peak: what an edit may leave
SHIFTS = 2000  # how far a shift is searched
FEWEST = 16  # one of so many steps of an edited curve has to be known
Rates = np.ndarray


def exchanged(pair: Any, torch_schedule: Any, paddle_schedule: Any) -> str:
    """Find the options of Paddle's scheduler that have to be PyTorch's before all curves agree."""
    from align.frameworks.on_paddle import begin_again  # files need no framework
    from align.pair import update_sides as sides

    if torch_schedule.scheduler is None or paddle_schedule.scheduler is None:
        return ""
    paddle_options = options(paddle_schedule.scheduler)
    torch_options = options(torch_schedule.scheduler)

    def passes(names: Sequence[str]) -> bool:
        def prepare(scheduler: Any) -> None:
            current = options(scheduler)
            for name in names:
                current[name].put(torch_options[name].value)
            begin_again(scheduler)

        changed = sides.schedule_of(pair, pair.setup.paddle, prepare)
        curves = sides.schedule_curves(pair, torch_schedule, changed)
        return all(comparison.passed for comparison in compare_curves(curves))

    needed = fewest(differing(paddle_options, torch_options), passes, OPTIONS)
    values = [(name, paddle_options[name].value, torch_options[name].value) for name in needed]
    return f"{options_in_words(values)}; with PyTorch's the schedule agrees" if values else ""


def explain_group(curve: Curve, everywhere: bool) -> str:
    """Explain one curve that differs, "" when nothing does; `everywhere`: all curves differ."""
    cause = explain(curve.ours, curve.reference)
    if everywhere or not cause.startswith("constant factor"):
        return cause
    at = int(np.argmax(np.abs(curve.reference)))
    ratio = curve.ours[at] / curve.reference[at] if curve.reference[at] else np.inf
    text = f"constant factor on group {curve.group}: Paddle's rate is {ratio:.6g} x PyTorch's"
    return f"{text}; it holds {some(curve.parameters)}"


def explain(paddle_rates: Rates, torch_rates: Rates) -> str:
    """Say what makes two curves (N,) differ, with both values; "" when nothing explains it."""
    a, b = (np.asarray(rates, np.float64) for rates in (paddle_rates, torch_rates))
    if a.shape != b.shape or len(a) < 2 or not np.isfinite([a, b]).all() or np.array_equal(a, b):
        return ""
    return first_cause(_edits(a, b), partial(_same, a), TRIALS)


def _same(curve: Rates, edited: Rates) -> bool:
    """Whether what is known of an edited curve is a curve; enough of it has to be known."""
    is_known = np.isfinite(edited)
    if is_known.sum() < max(4 if len(_changes(curve)) else 2, len(curve) // FEWEST):
        return False
    size = max(float(np.abs(curve).max()), float(np.abs(edited[is_known]).max())) or 1.0
    return bool(np.abs(edited[is_known] - curve[is_known]).max() <= EXACT * size)


def _edits(a: Rates, b: Rates) -> Edits:
    """Edits of PyTorch's curve, the plain ones first; a condition on both gives a itself."""
    if not len(_changes(a)) and len(_changes(b)):
        yield f"Paddle's rate never changes ({number(a[0])}), PyTorch's does", a
    yield from _shifted(b, range(1, 2))
    factor = float(a @ b) / (float(b @ b) or 1.0)
    largest = f"at every step (largest: {both(a.max(), b.max())})"
    says = f"constant factor: Paddle's rate is {number(factor)} x PyTorch's {largest}"
    yield says, factor * b if factor else None
    yield from _shifted(b, range(2, min(len(b) // 2, SHIFTS) + 1))
    yield from _per_epoch(a, b)


def _changes(x: Rates) -> Rates:
    """Steps at which a curve has another rate than at the step before."""
    return np.flatnonzero(np.abs(np.diff(x)) > 1e-12 * np.abs(x).max()) + 1


def _shifted(b: Rates, steps: range) -> Edits:
    """Some steps late or early as a whole; at least half of the changes have to be seen."""
    changes = _changes(b)
    least = max(2, len(changes) // 2)
    for k in steps:
        says = f"shifted by {k} step{'s' if k > 1 else ''}: Paddle's rates come too"
        unknown = np.full(k, np.nan)
        if (changes < len(b) - k).sum() >= least:
            yield f"{says} late", np.append(unknown, b[:-k])
        if (changes > k).sum() >= least:
            yield f"{says} early", np.append(b[k:], unknown)


def _per_epoch(a: Rates, b: Rates) -> Edits:
    """Paddle's scheduler is stepped less often."""
    runs, t = np.diff([0, *_changes(a)]), np.arange(len(b))
    if len(runs) > 1 and runs[0] > 1 and not np.ptp(runs) and len(_changes(b)) > 1.5 * len(runs):
        k = int(runs[0])
        title = f"per epoch instead of per step: Paddle's rate changes every {k} steps"
        yield f"{title}, the schedule is read once in {k} steps", b[k * (t // k)]
        yield f"{title}, it is stepped once in {k} steps", b[t // k]
