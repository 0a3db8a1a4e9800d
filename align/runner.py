"""Run cases through their steps and collect the report."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from align.case_kinds import (
    DataCase,
    EpochScheduleCase,
    GlueDataCase,
    LossCase,
    MetricCase,
    ModelCase,
    PixelCase,
    ScheduleCase,
    TimmCase,
    TrainerCase,
)
from align.case_kinds_built import BuiltCase, DefaultsCase, DrawsCase
from align.case_kinds_calls import PlainCallCase, PublishedCase
from align.case_kinds_models import (
    DrawnCase,
    PaddingCase,
    ResizedCase,
    StatisticsCase,
    ZeroMatrixCase,
)
from align.context import Context
from align.function_case import FunctionCase
from align.image_case_kinds import (
    BestChoiceCase,
    DrawnImagesCase,
    EvaluationCase,
    ImageNetACase,
    ImageTrainerCase,
    SmoothedLossCase,
)
from align.jobs import Job, jobs
from align.results import Report, StepResult
from align.run_kinds import FeedingCase, UpdateCase
from align.steps import (
    backward,
    best_choice,
    built,
    data,
    defaults,
    draws,
    dropped,
    evaluation,
    feeding,
    forward,
    functions,
    glue_data,
    image_data,
    image_draws,
    image_trainer,
    imagenet_a,
    learning_rate,
    loss,
    metric,
    optimizer,
    padding,
    parameter_updates,
    plain_call,
    published_layers,
    resized_weights,
    running_statistics,
    smoothed_loss,
    trainer_run,
    training,
    zero_matrices,
)
from sot_paddle.runtime import environment_stamp

__all__ = ["RUNNERS", "environment_stamp", "jobs", "run", "run_job"]

RUNNERS: Mapping[tuple[str, type], Callable[[Any, Any, Context], StepResult]] = {
    ("built", BuiltCase): built.run,
    ("built", DefaultsCase): defaults.run,
    ("built", DrawsCase): draws.run,
    ("data", DataCase): data.run,
    ("data", GlueDataCase): glue_data.run,
    ("data", DrawnImagesCase): image_draws.run,
    ("data", FeedingCase): feeding.run,
    ("data", PixelCase): image_data.run_pixels,
    ("loss", SmoothedLossCase): smoothed_loss.run,
    ("metric", BestChoiceCase): best_choice.run,
    ("metric", ImageNetACase): imagenet_a.run,
    ("metric", EvaluationCase): evaluation.run,
    ("data", ImageTrainerCase): image_trainer.run_data,
    ("training", ImageTrainerCase): image_trainer.run_training,
    ("metric", ImageTrainerCase): image_trainer.run_metric,
    ("forward", ModelCase): forward.run,
    ("forward", TimmCase): forward.run,
    ("forward", PlainCallCase): plain_call.run,
    ("forward", PublishedCase): published_layers.run,
    ("forward", FunctionCase): functions.run_forward,
    ("backward", FunctionCase): functions.run_backward,
    ("loss", LossCase): loss.run,
    ("metric", MetricCase): metric.run,
    ("learning_rate", ScheduleCase): learning_rate.run,
    ("learning_rate", EpochScheduleCase): learning_rate.run_by_epoch,
    ("backward", ModelCase): backward.run,
    ("backward", TimmCase): backward.run,
    ("optimizer", ModelCase): optimizer.run,
    ("optimizer", UpdateCase): parameter_updates.run,
    ("training", ModelCase): training.run,
    ("weights", ResizedCase): resized_weights.run,
    ("forward", DrawnCase): dropped.run,
    ("forward", StatisticsCase): running_statistics.run,
    ("backward", ZeroMatrixCase): zero_matrices.run,
    ("data", PaddingCase): padding.run,
    ("training", TrainerCase): trainer_run.run_training,
    ("learning_rate", TrainerCase): trainer_run.run_learning_rate,
}
"""What runs a step of a kind of case."""


def run_job(job: Job, context: Context) -> StepResult:
    """Run one step of one case and time it."""
    case, step, dtype = job
    began = time.perf_counter()
    with _remarks_unsaid():
        result = RUNNERS[step, type(case)](case, dtype, context)
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
    """Run jobs one after the other in this process; `align.job_sharing.run` shares them out.

    Args:
        todo: from `align.jobs.jobs`.
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
