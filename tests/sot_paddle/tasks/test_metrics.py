"""GLUE metrics by hand, and where a ratio is 0/0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sot_paddle.tasks.metrics import METRICS, glue_metrics

# counts, all different: 5 true positives, 4 true negatives, 2 false positives, 1 false negative
LABELS = np.array([1] * 5 + [0] * 4 + [0] * 2 + [1])
PREDICTIONS = np.array([1] * 5 + [0] * 4 + [1] * 2 + [0])
ACCURACY, F1 = 9 / 12, 10 / 13


@pytest.mark.parametrize("task", sorted(METRICS))
def test_every_task_returns_its_metrics_in_order(task: str) -> None:
    found = glue_metrics(task, PREDICTIONS, LABELS)
    assert tuple(found) == METRICS[task]
    assert all(isinstance(value, float) for value in found.values())
    assert glue_metrics(task.upper(), PREDICTIONS, LABELS) == found


@pytest.mark.parametrize("task", ["sst-2", "mnli", "mnli-mm", "qnli", "rte", "wnli"])
def test_accuracy(task: str) -> None:
    assert glue_metrics(task, PREDICTIONS, LABELS) == {"acc": ACCURACY}


@pytest.mark.parametrize("task", ["mrpc", "qqp"])
def test_accuracy_and_f1_of_class_one(task: str) -> None:
    found = glue_metrics(task, PREDICTIONS, LABELS)
    assert found["acc"] == ACCURACY
    assert found["f1"] == pytest.approx(F1, rel=1e-14)
    assert found["acc_and_f1"] == pytest.approx((ACCURACY + F1) / 2, rel=1e-14)


def test_matthews() -> None:
    expected = (5 * 4 - 2 * 1) / math.sqrt(7 * 6 * 6 * 5)
    found = glue_metrics("cola", PREDICTIONS, LABELS)
    assert found["mcc"] == pytest.approx(expected, rel=1e-13)


def test_correlations() -> None:
    x = np.array([0.5, 1.0, 4.0, 2.0, 3.0])
    y = np.array([0.0, 2.0, 5.0, 1.0, 4.5])
    pearson = np.corrcoef(x, y)[0, 1]
    spearman = 1 - 6 * ((x.argsort().argsort() - y.argsort().argsort()) ** 2).sum() / (5 * 24)
    found = glue_metrics("sts-b", x, y)
    assert found["pearson"] == pytest.approx(pearson, rel=1e-12)
    assert found["spearmanr"] == pytest.approx(spearman, rel=1e-12)
    assert found["corr"] == pytest.approx((pearson + spearman) / 2, rel=1e-12)


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


@pytest.mark.parametrize(
    ("task", "predictions", "labels", "message"),
    [
        ("squad", [1], [1], "unknown GLUE task 'squad'; known: cola, mnli"),
        ("cola", [1, 0], [1], r"same length.*\(2,\) and \(1,\)"),
        ("cola", [], [], "at least one element"),
        ("cola", [[1, 0]], [[1, 0]], "two vectors"),
    ],
)
def test_refusals(task: str, predictions: list, labels: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        glue_metrics(task, np.array(predictions), np.array(labels))
