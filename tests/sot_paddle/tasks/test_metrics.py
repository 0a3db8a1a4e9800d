"""GLUE metrics: which and in which order, and where a ratio is 0/0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.tasks.metrics import glue_metrics

# counts, all different: 5 true positives, 4 true negatives, 2 false positives, 1 false negative
LABELS = np.array([1] * 5 + [0] * 4 + [0] * 2 + [1])
PREDICTIONS = np.array([1] * 5 + [0] * 4 + [1] * 2 + [0])


@pytest.mark.parametrize("task", sorted({*TASKS, "mnli-mm"}))
def test_every_task_returns_its_metrics_in_order(task: str) -> None:
    found = glue_metrics(task, PREDICTIONS, LABELS)
    assert tuple(found) == TASKS[task.removesuffix("-mm")].metrics
    assert all(isinstance(value, float) for value in found.values())
    assert glue_metrics(task.upper(), PREDICTIONS, LABELS) == found


def test_one_predicted_class_scores_zero_without_a_warning() -> None:
    zeros, ones = np.zeros(6, int), np.ones(6, int)
    mixed = np.array([0, 1, 0, 1, 1, 0])
    assert glue_metrics("cola", zeros, mixed) == {"mcc": 0.0}
    assert glue_metrics("cola", zeros, zeros) == {"mcc": 0.0}
    assert glue_metrics("cola", ones, zeros) == {"mcc": 0.0}
    assert glue_metrics("mrpc", zeros, zeros)["f1"] == 0.0
    assert glue_metrics("mrpc", zeros, mixed)["f1"] == 0.0
    assert glue_metrics("mrpc", ones, ones)["f1"] == 1.0


@pytest.mark.parametrize("constant", ["predictions", "labels"])
def test_a_constant_side_has_no_correlation(constant: str) -> None:
    fixed, varied = np.full(4, 2.5), np.array([1.0, 2.0, 3.0, 5.0])
    pair = (fixed, varied) if constant == "predictions" else (varied, fixed)
    assert all(math.isnan(value) for value in glue_metrics("sts-b", *pair).values())


def test_a_single_row_has_no_correlation_and_is_no_error() -> None:
    found = glue_metrics("sts-b", np.array([2.5]), np.array([1.0]))
    assert tuple(found) == TASKS["sts-b"].metrics
    assert all(math.isnan(value) for value in found.values())


def test_scores_that_hardly_differ_are_correlated_in_float64() -> None:
    """SciPy computes in the type that it is given: float32 was off by 2e-4 here, with a warning."""
    rng = np.random.default_rng(0)
    labels = rng.uniform(0, 5, 300).astype(np.float32)
    scores = (2.5 + 1e-6 * (labels + rng.normal(size=300))).astype(np.float32)
    expected = np.corrcoef(scores.astype(np.float64), labels.astype(np.float64))[0, 1]
    assert glue_metrics("sts-b", scores, labels)["pearson"] == pytest.approx(expected, rel=1e-12)
