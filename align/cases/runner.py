"""Run cases through their steps and collect the report."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from align.cases.context import Context
from align.cases.jobs import Job, jobs
from align.cases.kinds.case_kinds import (
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
from align.cases.kinds.case_kinds_built import BuiltCase, DefaultsCase, DrawsCase
from align.cases.kinds.case_kinds_calls import PlainCallCase, PublishedCase
from align.cases.kinds.case_kinds_models import (
    DrawnCase,
    PaddingCase,
    ResizedCase,
    StatisticsCase,
    ZeroMatrixCase,
)
from align.cases.kinds.function_case import FunctionCase
from align.cases.kinds.image_case_kinds import (
    BestChoiceCase,
    DrawnImagesCase,
    EvaluationCase,
    ImageNetACase,
    ImageTrainerCase,
    SmoothedLossCase,
)
from align.cases.kinds.run_kinds import FeedingCase, UpdateCase
from align.cases.steps.models import (
    step_backward,
    step_built,
    step_defaults,
    step_draws,
    step_dropped,
    step_forward,
    step_functions,
    step_optimizer,
    step_padding,
    step_plain_call,
    step_published_layers,
    step_resized_weights,
    step_running_statistics,
    step_training,
    step_zero_matrices,
)
from align.cases.steps.runs import (
    step_best_choice,
    step_data,
    step_evaluation,
    step_feeding,
    step_glue_data,
    step_image_data,
    step_image_draws,
    step_image_trainer,
    step_imagenet_a,
    step_learning_rate,
    step_loss,
    step_metric,
    step_parameter_updates,
    step_smoothed_loss,
    step_trainer_run,
)
from align.record.results import Report, StepResult
from sot_paddle.runtime import environment_stamp

__all__ = ["RUNNERS", "environment_stamp", "jobs", "run", "run_job"]

RUNNERS: Mapping[tuple[str, type], Callable[[Any, Any, Context], StepResult]] = {
    ("built", BuiltCase): step_built.run,
    ("built", DefaultsCase): step_defaults.run,
    ("built", DrawsCase): step_draws.run,
    ("data", DataCase): step_data.run,
    ("data", GlueDataCase): step_glue_data.run,
    ("data", DrawnImagesCase): step_image_draws.run,
    ("data", FeedingCase): step_feeding.run,
    ("data", PixelCase): step_image_data.run_pixels,
    ("loss", SmoothedLossCase): step_smoothed_loss.run,
    ("metric", BestChoiceCase): step_best_choice.run,
    ("metric", ImageNetACase): step_imagenet_a.run,
    ("metric", EvaluationCase): step_evaluation.run,
    ("data", ImageTrainerCase): step_image_trainer.run_data,
    ("training", ImageTrainerCase): step_image_trainer.run_training,
    ("metric", ImageTrainerCase): step_image_trainer.run_metric,
    ("forward", ModelCase): step_forward.run,
    ("forward", TimmCase): step_forward.run,
    ("forward", PlainCallCase): step_plain_call.run,
    ("forward", PublishedCase): step_published_layers.run,
    ("forward", FunctionCase): step_functions.run_forward,
    ("backward", FunctionCase): step_functions.run_backward,
    ("loss", LossCase): step_loss.run,
    ("metric", MetricCase): step_metric.run,
    ("learning_rate", ScheduleCase): step_learning_rate.run,
    ("learning_rate", EpochScheduleCase): step_learning_rate.run_by_epoch,
    ("backward", ModelCase): step_backward.run,
    ("backward", TimmCase): step_backward.run,
    ("optimizer", ModelCase): step_optimizer.run,
    ("optimizer", UpdateCase): step_parameter_updates.run,
    ("training", ModelCase): step_training.run,
    ("weights", ResizedCase): step_resized_weights.run,
    ("forward", DrawnCase): step_dropped.run,
    ("forward", StatisticsCase): step_running_statistics.run,
    ("backward", ZeroMatrixCase): step_zero_matrices.run,
    ("data", PaddingCase): step_padding.run,
    ("training", TrainerCase): step_trainer_run.run_training,
    ("learning_rate", TrainerCase): step_trainer_run.run_learning_rate,
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
