"""Mean, deviation, interval and paired difference against scipy and by hand."""

import math

import pytest
from scipy import stats

from sot_paddle.search.paired_scores import SeedScores, paired_difference, seed_scores

A, B = (0.71, 0.66, 0.75, 0.69), (0.64, 0.67, 0.70, 0.61)


def test_mean_and_deviation_by_hand():
    found = seed_scores([1.0, 2.0, 6.0])
    assert found.mean == 3.0
    assert found.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2), rel=1e-15)
    half = 4.302652729911275 * found.std / math.sqrt(3)  # t(0.975, 2)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), rel=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_paired_difference_is_scipys_paired_t_test(confidence):
    found = paired_difference(A, B, confidence)
    test = stats.ttest_rel(A, B)
    interval = test.confidence_interval(confidence)
    assert found.mean == pytest.approx(sum(A) / 4 - sum(B) / 4, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-9)
    turned = paired_difference(B, A, confidence)
    assert turned.low == pytest.approx(-found.high, rel=1e-12)


def test_pairing_uses_that_a_seed_moves_both():
    first, second = (0.1, 0.5, 0.9), (0.05, 0.46, 0.84)
    paired = paired_difference(first, second)
    assert paired.low > 0
    assert seed_scores(first).low < seed_scores(second).high


def test_a_single_seed_has_no_interval_and_equal_values_one_without_width():
    assert seed_scores([0.5]) == SeedScores((0.5,), 0.5)
    assert seed_scores([0.5, 0.5]) == SeedScores((0.5, 0.5), 0.5, 0.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: seed_scores([]), "needs values"),
        (lambda: seed_scores([1.0], 1.0), "a confidence in"),
        (lambda: paired_difference([1.0], [1.0, 2.0]), "as many of both, got 1 and 2"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
