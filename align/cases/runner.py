"""Run cases through their steps and collect the report.

The steps of a pair of models are the stages of any pair, on the pair of the case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from align.cases import both_sides
from align.cases.context import Context
from align.cases.jobs import Job, jobs
from align.cases.kinds.case_kinds import Case, ModelCase
from align.cases.model_pair import ModelPair
from align.judge.backward_order import say_where_it_ends
from align.record.recording import ROOT
from align.record.results import Comparison, StepResult
from align.record.run_report import Report
from align.stages import optimizing, stages, training
from sot_paddle.runtime import environment_stamp

__all__ = ["RUNNERS", "environment_stamp", "jobs", "run", "run_job"]

Runner = Callable[[Any, Any, Context], StepResult]


def runner_of(case: Case, step: str) -> Runner:
    """What runs a step of a case."""
    if case.values:
        return lambda *rest: both_sides.run(rest[0], step, *rest[1:])
    return RUNNERS[step]


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


_TAP = re.compile(re.escape(ROOT) + r"\[(.+)\]")


def run_forward(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare every tap in execution order, and the running statistics."""
    pair = context.pair(case, dtype)
    result = _named(stages.forward(pair))
    sides = ({"logits": pair.outputs(run)["logits"]} for run in (pair.reference, pair.ours))
    context.log_classic("forward_align", f"{case.name}/{dtype}", *sides)
    return result


def run_backward(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare the loss, the gradients of the taps and of every parameter, from the loss back."""
    pair = context.pair(case, dtype)
    result = _named(stages.backward(pair))
    result.comparisons = list(_from_the_loss(pair, result.comparisons))
    sides = ({"loss": run.loss} for run in (pair.reference, pair.ours))
    context.log_classic("backward_align", f"{case.name}/{dtype}", *sides)
    return result


def run_optimizer(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare the updates that both optimizers make of the same gradients."""
    return optimizing.optimizer(context.pair(case, dtype))[0]


def run_training(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare a run of at least 20 optimizer steps with warm-up, decay and clipping."""
    result, _ = training.training(context.pair(case, dtype))
    names = {"loss": "losses", "learning_rate": "learning_rates"}
    sides = (
        {ours: np.asarray(result.series[name][side]) for name, ours in names.items()}
        for side in ("pytorch", "paddle")
    )
    context.log_classic("train_align", f"{case.name}/{dtype}", *sides)
    return result


def _named(result: StepResult) -> StepResult:
    """The result with the taps under their own names instead of as outputs of the model."""

    def plain(name: str) -> str:
        return _TAP.sub(r"\1", name)

    result.comparisons = [dataclasses.replace(c, name=plain(c.name)) for c in result.comparisons]
    result.controls = [
        dataclasses.replace(c, detail=plain(c.detail), located=plain(c.located))
        for c in result.controls
    ]
    return result


def _from_the_loss(pair: ModelPair, comparisons: Iterable[Comparison]) -> Iterator[Comparison]:
    """Gradients of the parameters in the order in which they are made, the last layer's first."""
    names = [row.destination.name for row in pair.setup.weights.rows]
    place = {name: position for position, name in enumerate(names)}
    held = {c.name: c for c in comparisons}
    parameters = sorted((n for n in held if n in place), key=place.__getitem__, reverse=True)
    first = next((n for n in held if n in place), None)
    for name, comparison in held.items():
        if name == first:
            partners = pair.setup.weights.partners()
            expected = {own for source in pair.reference.gradients for own in partners[source]}
            yield from say_where_it_ends((held[n] for n in parameters), expected)
        elif name not in place:
            yield comparison


RUNNERS: Mapping[str, Runner] = {
    "forward": run_forward,
    "backward": run_backward,
    "optimizer": run_optimizer,
    "training": run_training,
}
"""The steps that a case of two models has by itself."""
