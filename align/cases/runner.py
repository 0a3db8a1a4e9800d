"""Run cases through their steps and collect the report."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from align.cases import both_sides, model_steps
from align.cases.context import Context
from align.cases.jobs import Job, jobs
from align.cases.kinds.case_kinds import (
    Case,
    ModelCase,
    PairValuesCase,
    TimmCase,
    ValueCase,
)
from align.record.results import Report, StepResult
from sot_paddle.runtime import environment_stamp

__all__ = ["RUNNERS", "environment_stamp", "jobs", "run", "run_job"]

Runner = Callable[[Any, Any, Context], StepResult]
RUNNERS: Mapping[tuple[str, type], Runner] = {
    ("forward", ModelCase): model_steps.run_forward,
    ("forward", TimmCase): model_steps.run_forward,
    ("backward", ModelCase): model_steps.run_backward,
    ("backward", TimmCase): model_steps.run_backward,
    ("optimizer", ModelCase): model_steps.run_optimizer,
    ("training", ModelCase): model_steps.run_training,
}
"""What runs a step of a kind of case that has steps of its own."""


def runner_of(case: Case, step: str) -> Runner:
    """What runs a step of a case."""
    if isinstance(case, ValueCase | PairValuesCase):
        return lambda *rest: both_sides.run(rest[0], step, *rest[1:])
    return RUNNERS[step, type(case)]


def run_job(job: Job, context: Context) -> StepResult:
    """Run one step of one case and time it."""
    case, step, dtype = job
    began = time.perf_counter()
    with _remarks_unsaid():
        result = runner_of(case, step)(case, dtype, context)
    result.seconds = time.perf_counter() - began
    return result


@contextlib.contextmanager
def _remarks_unsaid() -> Iterator[None]:
    """The product's remarks are for its users: a case provokes some on purpose."""
    logger = logging.getLogger("sot_paddle")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def run(
    todo: Iterable[Job],
    context: Context,
    progress: Callable[[StepResult], None] = lambda result: None,
) -> Report:
    """Run jobs one after the other in this process; `align.cases.job_sharing.run` shares them out.

    Args:
        todo: from `align.cases.jobs.jobs`.
        context: shared state.
        progress: called with each result as it comes.

    Returns:
        The report; its environment stamp is taken at the end, when both frameworks are loaded.
    """
    results = []
    for job in todo:
        result = run_job(job, context)
        results.append(result)
        progress(result)
    return Report(environment_stamp(), results)
