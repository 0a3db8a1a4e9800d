"""Losses, GLUE's metrics and predicted splits at their edges; values: tests/parity."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest

from sot_paddle.data import glue_tasks
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.tasks import glue
from sot_paddle.tasks.losses import classification_loss, cross_entropy, mean_squared_error


def test_a_model_of_mnli_predicts_the_diagnostic_set_where_it_is(tmp_path):
    folder, table = tmp_path / "MNLI", glue_tasks.get_task("MNLI")
    folder.mkdir()
    assert glue.test_splits(folder, table) == ["test_matched"]  # reading it says what is missing
    (folder / "test_matched.tsv").touch()
    (folder / "diagnostic.tsv").touch()
    found = glue.test_splits(folder, table)
    files = [glue.GlueTask(table, 1).prediction_file(split) for split in found]
    assert files == ["MNLI-m.tsv", "AX.tsv"]


B, K = 5, 3
LABELS = np.array([2, 0, 1, 0, 2])


def logits(seed: int = 0, classes: int = K) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, classes)) * 3


def test_nothing_but_ignored_labels_is_nan() -> None:
    labels = paddle.full([B], -100, dtype="int64")
    assert np.isnan(float(cross_entropy(paddle.to_tensor(logits()), labels)))


def test_mean_squared_error_does_not_broadcast() -> None:
    column = paddle.to_tensor(logits(1, 1))
    labels = paddle.arange(B).astype("float64")
    expected = float(mean_squared_error(column, labels))
    assert float(mean_squared_error(column, labels.unsqueeze(1))) == expected


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_logits_give_a_float32_loss(half: str) -> None:
    x = paddle.to_tensor(logits()).astype(half)
    loss = cross_entropy(x, paddle.to_tensor(LABELS))
    assert loss.dtype == paddle.float32
    exact = cross_entropy(x.astype("float64"), paddle.to_tensor(LABELS))
    assert float(loss) == pytest.approx(float(exact), rel=1e-6)
    one = paddle.to_tensor(logits(1, 1)).astype(half)
    assert mean_squared_error(one, paddle.to_tensor(LABELS)).dtype == paddle.float32
    soft = paddle.to_tensor(np.eye(K)[LABELS])
    assert classification_loss(x, soft).dtype == paddle.float32


def test_soft_targets_are_not_smoothed() -> None:
    targets = paddle.to_tensor(np.random.default_rng(3).dirichlet(np.ones(K), size=B))
    x = paddle.to_tensor(logits())
    assert float(classification_loss(x, targets, 0.1)) == float(classification_loss(x, targets))


# counts, all different: 5 true positives, 4 true negatives, 2 false positives, 1 false negative
TRUTH = np.array([1] * 5 + [0] * 4 + [0] * 2 + [1])
PREDICTIONS = np.array([1] * 5 + [0] * 4 + [1] * 2 + [0])


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_returns_its_metrics_in_order(task: str) -> None:
    found = glue.glue_metrics(TASKS[task].metrics, PREDICTIONS, TRUTH)
    assert tuple(found) == TASKS[task].metrics
    assert all(isinstance(value, float) for value in found.values())


def test_one_predicted_class_scores_zero_without_a_warning() -> None:
    zeros, ones = np.zeros(6, int), np.ones(6, int)
    mixed = np.array([0, 1, 0, 1, 1, 0])
    assert glue.glue_metrics(TASKS["cola"].metrics, zeros, mixed) == {"mcc": 0.0}
    assert glue.glue_metrics(TASKS["cola"].metrics, zeros, zeros) == {"mcc": 0.0}
    assert glue.glue_metrics(TASKS["cola"].metrics, ones, zeros) == {"mcc": 0.0}
    assert glue.glue_metrics(TASKS["mrpc"].metrics, zeros, zeros)["f1"] == 0.0
    assert glue.glue_metrics(TASKS["mrpc"].metrics, zeros, mixed)["f1"] == 0.0
    assert glue.glue_metrics(TASKS["mrpc"].metrics, ones, ones)["f1"] == 1.0


@pytest.mark.parametrize("constant", ["predictions", "labels"])
def test_a_constant_side_has_no_correlation(constant: str) -> None:
    fixed, varied = np.full(4, 2.5), np.array([1.0, 2.0, 3.0, 5.0])
    pair = (fixed, varied) if constant == "predictions" else (varied, fixed)
    assert all(
        math.isnan(value) for value in glue.glue_metrics(TASKS["sts-b"].metrics, *pair).values()
    )


def test_scores_that_hardly_differ_are_correlated_in_float64() -> None:
    """SciPy computes in the type that it is given: float32 was off by 2e-4 here, with a warning."""
    rng = np.random.default_rng(0)
    labels = rng.uniform(0, 5, 300).astype(np.float32)
    scores = (2.5 + 1e-6 * (labels + rng.normal(size=300))).astype(np.float32)
    expected = np.corrcoef(scores.astype(np.float64), labels.astype(np.float64))[0, 1]
    assert glue.glue_metrics(TASKS["sts-b"].metrics, scores, labels)["pearson"] == pytest.approx(
        expected, rel=1e-12
    )
