"""The experiment: a cause is an edit after which the judge passes.

A subject is whatever an edit can change: a pair of arrays, the items of a loss, a setting, a source
text. Edits are tried in their order; the first one after which the stage's own judge passes is the
cause. A budget is a number of trials, not of seconds: one fault has one answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Edit(Generic[Subject]):
    """One candidate.

    Attributes:
        says: the sentence that is true when the judge passes after it.
        apply: makes the edited subject of a subject; None where it does not apply.
    """

    says: str
    apply: Callable[[Subject], Subject | None]


@dataclass(frozen=True)
class Finding(Generic[Subject]):
    """The first edit after which the judge passes.

    Attributes:
        cause: its sentence.
        edited: the subject after it.
        trials: how often the judge was asked.
    """

    cause: str
    edited: Subject
    trials: int


def explain(
    subject: Subject,
    edits: Iterable[Edit[Subject]],
    passes: Callable[[Subject], bool],
    budget: int,
) -> Finding[Subject] | None:
    """Try edits in their order.

    Args:
        subject: what the judge fails.
        edits: the likely and the simple ones first; made one at a time, so that an edit may hold a
            number that was fitted for it.
        passes: the judge.
        budget: trials, at least 1; an edit that does not apply costs none.

    Returns:
        The first edit after which the judge passes, None when none does within the budget.
    """
    trials = 0
    for edit in edits:
        edited = edit.apply(subject)
        if edited is None:
            continue
        trials += 1
        if passes(edited):
            return Finding(edit.says, edited, trials)
        if trials >= budget:
            break
    return None
