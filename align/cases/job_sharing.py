"""Run the jobs of cases in worker processes; the report keeps the order of the jobs."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from align.cases.jobs import Job, batches
from align.processes import Failure, TaskBatch, outcomes, tuning
from align.record.results import StepResult
from align.record.run_report import Report
from sot_paddle.runtime import ignore_import_warnings

if TYPE_CHECKING:
    from align.cases.context import Context


def run(
    todo: Sequence[Job],
    context: Context,
    progress: Callable[[StepResult], None] = lambda result: None,
    workers: int = 1,
) -> Report:
    """Run jobs in worker processes.

    Args:
        todo: from `align.cases.jobs.jobs`.
        context: the user's choices; receives the arrays of the classic checks.
        progress: called with each result as it comes, in no fixed order.
        workers: processes, at least 1; no more are started than there are batches.

    Returns:
        The report, in the order of ``todo``.

    Raises:
        ValueError: what a job refused, or a worker process ended early.
    """
    shared = [TaskBatch(batch) for batch in batches(todo)]
    found: dict[int, StepResult] = {}
    classic: dict[int, Mapping[str, Any]] = {}
    stamp: dict[str, Any] = {}
    work = functools.partial(_do, choices=context.choices)
    with contextlib.closing(outcomes(todo, work, shared, workers)) as results:
        for position, outcome in results:
            if isinstance(outcome, Failure):
                raise ValueError(_said(outcome, todo[position]))
            found[position], classic[position], of_worker = outcome
            stamp |= of_worker
            progress(found[position])
    for position in sorted(classic):
        context.add_classic(classic[position])
    stamp |= {"tuning": tuning(), "workers": min(workers, len(shared))}
    return Report(stamp, [found[position] for position in range(len(todo))])


def _said(failure: Failure, job: Job) -> str:
    """One clear line."""
    if failure.refused:
        return failure.why
    case, step, dtype = job
    advice = "--jobs 0 runs it in this process"
    if failure.signal:
        advice = "when memory was short, try --jobs 1"
    place = f"{case.name}, step {step}{f', {dtype}' if dtype else ''}"
    return f"a worker process, at {place}, {failure.why}; {advice}"


def _do(
    batch: Sequence[Job], choices: Mapping[str, Any]
) -> Iterator[tuple[StepResult, Mapping[str, Any], dict[str, Any]]]:
    """Result and arrays of each job; with the last one, what it ran on."""
    runner = _framework_runner()
    from align.cases.context import Context

    context = Context(**choices)
    for i, job in enumerate(batch):
        result = runner.run_job(job, context)
        stamp = {} if i < len(batch) - 1 else runner.environment_stamp()
        yield result, context.take_classic(), stamp
    del context
    _tidy()


def _framework_runner():
    """`align.cases.runner`, and with it both frameworks, imported once."""
    if "align.cases.runner" not in sys.modules:
        ignore_import_warnings()
        gc.disable()
        import paddlenlp.transformers  # noqa: F401

        import sot_paddle.registry  # noqa: F401
        import sot_torch_ref  # noqa: F401
        from align.cases import runner  # noqa: F401

        _tidy()
        gc.enable()
    return sys.modules["align.cases.runner"]


def _tidy() -> None:
    """Free the models of a batch, and look no more at what is left.

    That is what imports made, a million objects that are never garbage: to go through them again
    and again would cost seconds.
    """
    gc.collect()
    gc.freeze()
