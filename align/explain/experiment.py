"""The experiment: a cause is an edit after which the judge passes.

A subject is whatever an edit can change: a pair of arrays, the items of a loss, a setting, a source
text. Edits are tried in their order; the first one after which the stage's own judge passes is the
cause. A budget is a number of trials, not of seconds: one fault has one answer on every machine.

Legend: a = ours (Paddle), b = the reference (PyTorch), for edits of arrays.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

_SCIPY = importlib.util.find_spec("scipy") is not None  # files are compared by NumPy alone
optimize, special = (
    importlib.import_module(f"scipy.{name}") if _SCIPY else None for name in ("optimize", "special")
)
"""scipy's modules, None without scipy."""

Subject = TypeVar("Subject")
EXPLAINED = 0.01
"""Part of a difference of arrays that an edit may leave."""


@dataclass(frozen=True)
class Edit(Generic[Subject]):
    """One candidate.

    Attributes:
        says: the sentence that is true when the judge passes after it.
        apply: makes the edited subject of a subject; None where it does not apply.
    """

    says: str
    apply: Callable[[Subject], Subject | None]


def becomes(says: str, made: Subject) -> Edit[Subject]:
    """An edit of which the edited subject is at hand."""
    return Edit(says, lambda _: made)


def first_cause(
    subject: Subject,
    edits: Iterable[Edit[Subject]],
    passes: Callable[[Subject], bool],
    budget: int,
) -> str:
    """Try edits in their order.

    Args:
        subject: what the judge fails.
        edits: the likely and the simple ones first; made one at a time, so that an edit may hold a
            number that was fitted for it.
        passes: the judge.
        budget: trials, at least 1; an edit that does not apply costs none.

    Returns:
        The sentence of the first edit after which the judge passes, "" when none does within the
        budget.
    """
    trials = 0
    with np.errstate(all="ignore"):
        for edit in edits:
            edited = edit.apply(subject)
            if edited is None:
                continue
            trials += 1
            if passes(edited):
                return edit.says
            if trials >= budget:
                break
    return ""


def fewest(
    subject: Subject,
    edits: Iterable[Edit[Subject]],
    passes: Callable[[Subject], bool],
    budget: int,
) -> list[Edit[Subject]]:
    """The fewest edits after which the judge passes: one, or all without those it does not need.

    Args:
        subject: what the judge fails.
        edits: with sentences that differ.
        passes: the judge.
        budget: trials of single edits; as many again are needed to find a smallest set.

    Returns:
        Edits, none when the judge fails after all of them together.
    """
    edits = list(edits)[:budget]
    single = first_cause(subject, edits, passes, budget)
    if single:
        return [edit for edit in edits if edit.says == single][:1]
    kept = edits
    for left_out in (None, *edits):
        rest = [edit for edit in kept if edit is not left_out]
        if len(rest) > 1 and first_cause(subject, [_together(rest)], passes, 1):
            kept = rest
        elif left_out is None:
            return []
    return kept


def _together(edits: Sequence[Edit[Subject]]) -> Edit[Subject]:
    def apply(subject: Subject) -> Subject | None:
        for edit in edits:
            subject = None if subject is None else edit.apply(subject)
        return subject

    return Edit("; ".join(edit.says for edit in edits), apply)


def scale(a: np.ndarray, b: np.ndarray) -> float:
    """The factor k with which k b is nearest to a, 0 for b = 0."""
    energy = float(np.vdot(b, b))
    return float(np.vdot(b, a)) / energy if energy else 0.0


def close_to(a: np.ndarray, near: float) -> Callable[[np.ndarray], bool]:
    """The judge of edits of an array: whether an edited b is a."""
    return lambda made: made.shape == a.shape and bool(np.abs(made - a).max() <= near)


def fitted(error: Callable[[float], float], low: float, high: float) -> float:
    """The one number of an edit: the best of a grid, refined by scipy where it is installed.

    Args:
        error: what an edit with a number leaves.
        low: of the range.
        high: of the range.
    """
    grid = np.linspace(low, high, 73)
    best = float(grid[int(np.argmin([error(value) for value in grid]))])
    if optimize is None:
        return best
    step = grid[1] - grid[0]
    around, fine = (best - step, best + step), {"xatol": 1e-12}
    found = optimize.minimize_scalar(error, bounds=around, method="bounded", options=fine)
    return float(found.x)
