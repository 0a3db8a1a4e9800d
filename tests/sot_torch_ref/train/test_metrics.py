"""Metrics against hand counts and other formulas."""

import math

import numpy as np
import pytest

from sot_torch_ref.train import metrics

PREDICTIONS = [1, 1, 0, 1, 0, 0, 1, 0, 1, 1]
LABELS = [1, 0, 0, 1, 1, 0, 1, 0, 0, 1]
TP, FP, FN, TN = 4, 2, 1, 3


def test_binary_metrics_by_hand() -> None:
    assert metrics.accuracy(PREDICTIONS, LABELS) == 0.7
    assert metrics.f1_score(PREDICTIONS, LABELS) == pytest.approx(2 * TP / (2 * TP + FP + FN))
    expected = (TP * TN - FP * FN) / math.sqrt((TP + FP) * (TP + FN) * (TN + FP) * (TN + FN))
    assert metrics.matthews_correlation(PREDICTIONS, LABELS) == pytest.approx(expected, rel=1e-14)


def test_matthews_of_three_classes_equals_correlation_of_indicators() -> None:
    random = np.random.default_rng(1)
    left, right = random.integers(0, 3, 40), random.integers(0, 3, 40)
    one_hot_left, one_hot_right = (np.eye(3)[side] for side in (left, right))
    a, b = one_hot_left - one_hot_left.mean(0), one_hot_right - one_hot_right.mean(0)
    expected = (a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum())
    assert metrics.matthews_correlation(left, right) == pytest.approx(expected, rel=1e-12)


def test_degenerate_binary_metrics() -> None:
    for predictions, labels in (([1, 1, 1], [1, 0, 1]), ([0, 1, 0], [1, 1, 1]), ([1], [1])):
        assert metrics.matthews_correlation(predictions, labels) == 0.0
    assert metrics.f1_score([0, 0], [0, 0]) == 0.0
    assert metrics.f1_score([0, 0], [0, 1]) == 0.0
    assert metrics.matthews_correlation([0, 1], [0, 1]) == 1.0
    assert metrics.matthews_correlation([0, 1], [1, 0]) == -1.0


def test_average_ranks_with_ties() -> None:
    assert metrics.average_ranks([10.0, 20.0, 20.0, 5.0, 20.0]).tolist() == [2, 4, 4, 1, 4]


def test_correlations() -> None:
    x, y = [1.0, 2.0, 2.0, 3.5, 0.5], [2.0, 1.0, 3.0, 8.0, 0.0]
    assert metrics.pearson_correlation(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-13)
    ranks = np.corrcoef([2, 3.5, 3.5, 5, 1], [3, 2, 4, 5, 1])[0, 1]
    assert metrics.spearman_correlation(x, y) == pytest.approx(ranks, rel=1e-13)
    assert metrics.spearman_correlation([1, 2, 3], [1, 8, 27]) == pytest.approx(1.0)
    assert metrics.pearson_correlation([1, 2, 3], [-1, -2, -3]) == pytest.approx(-1.0)


def test_correlation_without_ties_equals_the_difference_formula() -> None:
    random = np.random.default_rng(2)
    x, y = random.permutation(30), random.permutation(30)
    expected = 1 - 6 * ((x - y) ** 2).sum() / (30 * (30**2 - 1))
    assert metrics.spearman_correlation(x, y) == pytest.approx(expected, rel=1e-12)


def test_correlation_of_a_constant_is_nan() -> None:
    for function in (metrics.pearson_correlation, metrics.spearman_correlation):
        assert math.isnan(function([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))
        assert math.isnan(function([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]))
        assert math.isnan(function([1.0, math.nan, 3.0], [0.1, 0.2, 0.4]))


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("cola", ["mcc"]),
        ("sst-2", ["acc"]),
        ("mrpc", ["acc", "f1", "acc_and_f1"]),
        ("sts-b", ["pearson", "spearmanr", "corr"]),
        ("qqp", ["acc", "f1", "acc_and_f1"]),
        ("mnli", ["acc"]),
        ("mnli-mm", ["acc"]),
        ("qnli", ["acc"]),
        ("rte", ["acc"]),
        ("wnli", ["acc"]),
    ],
)
def test_glue_names(task: str, names: list[str]) -> None:
    assert list(metrics.glue_metrics(task, PREDICTIONS, LABELS)) == names


def test_glue_values() -> None:
    mrpc = metrics.glue_metrics("mrpc", PREDICTIONS, LABELS)
    assert mrpc["acc_and_f1"] == pytest.approx((0.7 + 8 / 11) / 2)
    x, y = [1.0, 2.0, 2.0, 3.5], [2.0, 1.0, 3.0, 8.0]
    stsb = metrics.glue_metrics("sts-b", x, y)
    assert stsb["pearson"] == metrics.pearson_correlation(x, y)
    assert stsb["spearmanr"] == metrics.spearman_correlation(x, y)
    assert stsb["corr"] == (stsb["pearson"] + stsb["spearmanr"]) / 2
    expected = metrics.matthews_correlation(PREDICTIONS, LABELS)
    assert metrics.glue_metrics("cola", PREDICTIONS, LABELS) == {"mcc": expected}


def test_refusals() -> None:
    with pytest.raises(ValueError, match="unknown GLUE task 'ax'; expected one of cola"):
        metrics.glue_metrics("ax", [1], [1])
    with pytest.raises(ValueError, match="vectors of the same length"):
        metrics.accuracy([[0.1, 0.9]], [1])
    with pytest.raises(ValueError, match="vectors of the same length"):
        metrics.accuracy([1, 0], [1])
    with pytest.raises(ValueError, match="at least 1"):
        metrics.accuracy([], [])
    with pytest.raises(ValueError, match="F1 needs classes 0 and 1"):
        metrics.f1_score([0, 2], [0, 1])
