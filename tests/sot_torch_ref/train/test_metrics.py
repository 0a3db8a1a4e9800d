"""Metrics where no case goes: three classes, ranks of ties."""

import math

import numpy as np
import pytest

from sot_torch_ref.train import metrics


def test_matthews_of_three_classes_equals_correlation_of_indicators() -> None:
    random = np.random.default_rng(1)
    left, right = random.integers(0, 3, 40), random.integers(0, 3, 40)
    one_hot_left, one_hot_right = (np.eye(3)[side] for side in (left, right))
    a, b = one_hot_left - one_hot_left.mean(0), one_hot_right - one_hot_right.mean(0)
    expected = (a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum())
    assert metrics.matthews_correlation(left, right) == pytest.approx(expected, rel=1e-12)


def test_average_ranks_with_ties() -> None:
    assert metrics.average_ranks([10.0, 20.0, 20.0, 5.0, 20.0]).tolist() == [2, 4, 4, 1, 4]


def test_correlation_of_a_constant_or_of_nan_is_nan() -> None:
    for function in (metrics.pearson_correlation, metrics.spearman_correlation):
        assert math.isnan(function([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))
        assert math.isnan(function([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]))
        assert math.isnan(function([1.0, math.nan, 3.0], [0.1, 0.2, 0.4]))
