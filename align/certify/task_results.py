"""Tasks of a certifying run done by worker processes: faults and clean runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from align.processes import Failure, TaskBatch, Work, outcomes

Progress = Callable[[int, int, Any, Any], None]
"""Called after each task with the number done, the number of all, the task and its result."""


def results(
    tasks: Sequence[Any],
    work: Work,
    jobs: int,
    without: Callable[[Any, str], Any],
    progress: Progress | None = None,
    environments: Sequence[Mapping[str, str]] | None = None,
    limit: float = math.inf,
) -> list[Any]:
    """The result of every task, in their order.

    Args:
        tasks: of any kind that can be pickled.
        work: what a worker does with a batch of them.
        jobs: worker processes.
        without: a task and what became of its worker -> the result of a task that has none.
        progress: see there.
        environments: of the worker of each task.
        limit: seconds for one task.
    """
    given = environments or [{}] * len(tasks)
    batches = [TaskBatch((i,), environment) for i, environment in enumerate(given)]
    found: list[Any] = [None] * len(tasks)
    running = outcomes(tasks, work, batches, jobs, limit, quiet=True)
    with contextlib.closing(running) as finished:
        for done, (i, outcome) in enumerate(finished, start=1):
            failed = isinstance(outcome, Failure)
            found[i] = without(tasks[i], f"the worker {outcome.why}") if failed else outcome
            if progress is not None:
                progress(done, len(tasks), tasks[i], found[i])
    return found
