"""What a run has to do: jobs, and the batches in which worker processes take them. No framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from align.cases.kinds.case_kinds import (
    Case,
    ModelCase,
    TimmCase,
    TrainerCase,
    ValueCase,
)

Job = tuple[Case, str, str | None]
"""(case, step, dtype)."""

Batch = list[int]
"""Positions of jobs that one worker does one after the other."""


def jobs(cases: Iterable[Case], steps: Iterable[str], dtypes: Iterable[str]) -> Iterator[Job]:
    """Every (case, step, dtype) to run; the steps of one case and dtype follow each other."""
    wanted, precisions = set(steps), {*dtypes, None}
    for case in cases:
        for dtype in case.dtypes:
            if dtype in precisions:
                yield from ((case, step, dtype) for step in case.steps if step in wanted)


def batches(todo: Sequence[Job]) -> list[Batch]:
    """Jobs that share a built pair, a tokenizer or a library, longest batches first."""
    together: dict[tuple[str, ...], Batch] = {}
    for position, (case, _, dtype) in enumerate(todo):
        together.setdefault(_shared(case, dtype), []).append(position)
    # sorted() is stable: batches of one rank keep the order of the cases
    return sorted(together.values(), key=lambda batch: -max(_rank(todo[at]) for at in batch))


def _shared(case: Case, dtype: str | None) -> tuple[str, ...]:
    """What a job shares with the others of its batch."""
    if isinstance(case, TimmCase) and case.quick:
        return ("timm",)
    return (case.name, str(dtype)) if isinstance(case, ModelCase) else (_module(case),)


def _module(case: Case) -> str:
    """The module of a case's values, "" for a model."""
    return case.values.partition(":")[0] if isinstance(case, ValueCase) else ""


def _rank(job: Job) -> int:
    """How long a job takes, roughly: what is long has to begin early."""
    case, step, _ = job
    if isinstance(case, TrainerCase):
        return 4  # a program of its own
    if not case.quick:
        return 5
    if step in ("training", "built"):
        return 3
    if isinstance(case, ModelCase) and case.subject == "images":
        return 2
    return 1
