"""The experiment: a cause is an edit after which the judge passes.

A subject is whatever an edit can change: an array, a loss, a setting, the calls of a layer. An edit
is a sentence and what it makes of the subject; the sentence is true when the step's own judge
passes then. Edits are tried in their order, and the first that passes is the cause. A budget is a
number of trials, not of seconds: one fault has one answer on every machine. What an experiment
raises ends that experiment only. (Of the calls of a layer, `WatchedCall` limits the bytes.)

Legend: a = Paddle's array, b = PyTorch's, for edits of arrays.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import numpy as np

Subject = TypeVar("Subject")
Edits = Iterator[tuple[str, np.ndarray]]
"""Sentences, each with the array that PyTorch's would be if it were true."""
EXPLAINED = 0.01  # part of a difference of arrays that an edit may leave
GRIDS, POINTS = 7, 37
SAME = 1e-5  # relative difference of measured numbers that are one


def first_cause(
    edits: Iterable[tuple[str, Subject | None]], passes: Callable[[Subject], bool], budget: int
) -> str:
    """Return the sentence of the first edit after which the judge passes, "" for none.

    Args:
        edits: sentences, each with what it makes of the subject, None where it does not apply; the
            likely and the simple ones first. They are made one at a time: some fit a number.
        passes: the judge.
        budget: trials, at least 1; an edit that does not apply costs none.
    """
    apply = ((sentence, edited) for sentence, edited in edits if edited is not None)
    with np.errstate(all="ignore"), contextlib.suppress(Exception):  # no further edit is made
        for sentence, edited in itertools.islice(apply, budget):
            if _passes(passes, edited):
                return sentence
    return ""


def _passes(passes: Callable[[Subject], bool], edited: Subject) -> bool:
    """Ask the judge; whatever an experiment raises, MemoryError included, is a no."""
    with contextlib.suppress(Exception):
        return passes(edited)
    return False


@np.errstate(all="ignore")
def fewest(
    changes: Sequence[Subject], passes: Callable[[Sequence[Subject]], bool], budget: int
) -> Sequence[Subject]:
    """Find the fewest changes after which the judge passes: one, or all but those not needed.

    The budget counts trials of single changes; as many again find a smallest set.
    """
    changes = changes[:budget]
    for change in changes:
        if _passes(passes, [change]):
            return [change]
    if len(changes) < 2 or not _passes(passes, changes):
        return []
    needed = changes
    for left_out in changes:
        rest = [change for change in needed if change is not left_out]
        if len(rest) > 1 and _passes(passes, rest):
            needed = rest
    return needed


def scale(a: np.ndarray, b: np.ndarray) -> float:
    """Return the factor k with which k b is nearest to a, 0 for b = 0."""
    energy = float(np.vdot(b, b))
    return float(np.vdot(b, a)) / energy if energy else 0.0


def close_to(a: np.ndarray, near: float) -> Callable[[np.ndarray], bool]:
    """Make the judge of edits of an array: whether an edited b is a.

    Nothing passes when ``near`` is 0 or no finite number: the values agree already, or all would.
    """
    can_judge = 0 < near < np.inf
    return lambda b: can_judge and b.shape == a.shape and bool(np.abs(b - a).max() <= near)


def fitted(error: Callable[[float], float], low: float, high: float) -> float:
    """Fit the one number of an edit: the best of a grid, then of finer ones around it."""
    best = low
    for _ in range(GRIDS):
        grid = np.linspace(low, high, POINTS)
        best = float(grid[int(np.argmin([error(value) for value in grid]))])
        step = grid[1] - grid[0]
        low, high = best - step, best + step
    return best


def renamed(
    name: str,
    paddle_values: Mapping[str, Any],
    torch_values: Mapping[str, Any],
    equal: Callable[[Any, Any], bool],
) -> str:
    """Say of a name that one side lacks whether its value stands there under another name."""
    who, lacking, having = "Paddle", paddle_values, torch_values
    if name in paddle_values:
        who, lacking, having = "PyTorch", torch_values, paddle_values
    for other, value in lacking.items():
        if other not in having and equal(value, having[name]):
            return f"{name!r} is missing in {who}: its values are there under the name {other!r}"
    return f"{name!r} is missing in {who}: it has {', '.join(lacking)}"


def number(value: Any) -> str:
    """Write a setting as people write it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(number, value)) + "]"
    return f"{value:.6g}" if isinstance(value, Real) and not isinstance(value, bool) else str(value)


def both(paddle_value: Any, torch_value: Any) -> str:
    """Write two settings side by side."""
    return f"Paddle {number(paddle_value)}, PyTorch {number(torch_value)}"


def options_in_words(values: Sequence[tuple[str, Any, Any]]) -> str:
    """Say which options differ, from (name, Paddle's, PyTorch's)."""
    names, paddle_values, torch_values = zip(*values, strict=True)
    if len(names) == 1 and True in (paddle_values[0] is True, torch_values[0] is True):
        return f"{names[0]}: only {'Paddle' if paddle_values[0] else 'PyTorch'} has it"
    sides = [[number(value) for value in side] for side in (paddle_values, torch_values)]
    exchanged = sorted(sides[0]) == sorted(sides[1]) and len(names) > 1
    title = " and ".join(names) + (" exchanged" if exchanged else "")
    return f"{title}: Paddle {' and '.join(sides[0])}, PyTorch {' and '.join(sides[1])}"
