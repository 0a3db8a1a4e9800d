"""The bound that rounding explains: its rate of false alarms, its power, and its laziness."""

import numpy as np
import pytest
from scipy import stats

from align.judge import noise_band
from align.judge.comparator import compare_arrays
from align.judge.noise_band import CEILING, FLOOR, RUNS, NoiseBand, bound, factor
from align.record.tolerance import Tolerance

BAND = Tolerance("band", FLOOR, "the band of the tests")
RNG = np.random.default_rng(5)


def band_of(errors, oracle):
    """A band whose moved runs are off by the given errors (RUNS, n)."""
    runs = [{"taps": {"t": oracle + error}} for error in errors]
    return NoiseBand(lambda: {"taps": {"t": oracle}}, runs.__getitem__)


def test_the_factor_of_one_direction_is_students_t_and_never_below_the_kernels():
    assert factor(1.0) == pytest.approx(stats.t.isf(noise_band.FALSE_ALARM / 2, RUNS))
    assert factor(1.0) > factor(1.5) > factor(3.0) > noise_band.KERNELS
    assert factor(1000.0) == noise_band.KERNELS


@pytest.mark.parametrize("rank", [1, 2, 40])
def test_right_code_fails_no_more_often_than_stated(monkeypatch, rank):
    """At a rate of one in fifty, which a test can count: Gaussian errors of a known rank."""
    monkeypatch.setattr(noise_band, "FALSE_ALARM", 0.02)
    monkeypatch.setattr(noise_band, "KERNELS", 0.0)
    rounds, alarms = 2000, 0
    oracle = np.ones(300)
    for _ in range(rounds):
        directions = RNG.normal(size=(rank, 300))
        errors = RNG.normal(size=(RUNS + 1, rank)) @ directions * 1e-6
        allowed = band_of(errors[1:], oracle).of("taps")("t", "l2")
        alarms += np.linalg.norm(errors[0]) > allowed
    # 40 are expected; a binomial count above 80 has a probability of 1e-8
    assert alarms <= 80
    assert rank > 1 or alarms >= 10  # and for one direction the quantile is no wider than needed


@pytest.mark.parametrize(("rank", "most"), [(1, 30.0), (200, 4.0)])
def test_the_directions_of_the_error_are_found_from_the_angles(rank, most):
    oracle = np.ones(5000)
    errors = RNG.normal(size=(RUNS, rank)) @ RNG.normal(size=(rank, 5000)) * 1e-7
    band = band_of(errors, oracle)
    scatter = np.sqrt(np.mean(np.linalg.norm(errors, axis=1) ** 2))
    assert band.of("taps")("t", "l2") / scatter == pytest.approx(most, rel=0.03)
    largest = np.sqrt(np.mean(np.abs(errors).max(axis=1) ** 2))
    assert band.of("taps")("t", "max") / largest == pytest.approx(most, rel=0.03)


def test_runs_without_an_error_count_as_one_direction():
    errors = np.zeros((RUNS, 10))
    errors[0] = 1e-7
    allowed = band_of(errors, np.ones(10)).of("taps")("t", "max")
    assert allowed == pytest.approx(factor(1.0) * 1e-7 / np.sqrt(RUNS), rel=1e-6)


def test_the_moved_runs_are_made_only_where_their_answer_matters():
    def never():
        pytest.fail("asked for noise without need")

    assert bound(FLOOR, FLOOR, 0.0, never) == FLOOR
    assert bound(1.0, FLOOR, 0.0, never) == CEILING
    assert bound(2e-5, FLOOR, 1.3e-5, lambda: 3e-6) == pytest.approx(1.6e-5)
    assert bound(2e-5, FLOOR, 0.0, lambda: 0.0) == FLOOR


def judged(off, noise):
    o = np.linspace(1, 2, 8)
    ours = (o * (1 + off)).astype(np.float32)
    measured = None if noise is None else lambda name, norm: noise * np.abs(o).max()
    return compare_arrays("t", ours, o.astype(np.float32), BAND, oracle=o, noise=measured)


def test_a_tensor_within_the_band_passes_and_beyond_it_fails():
    assert judged(1e-5, 2e-5).passed
    assert not judged(3e-5, 2e-5).passed
    assert not judged(1e-5, None).passed  # without noise the floor holds
    assert judged(5e-7, None).passed


def test_a_band_that_judges_nothing_is_refused_and_says_what_to_do():
    refused = judged(1e-5, 2 * CEILING)
    assert not refused.passed
    assert "choose better conditioned inputs" in refused.reason
    assert not judged(0.5, 2 * CEILING).passed


@pytest.mark.parametrize(
    "options", [{"kind": "scaled", "bias": 0.1}, {"kind": "band", "bias": 1.5}]
)
def test_a_bias_that_means_nothing_is_refused(options):
    kind = options.pop("kind")
    with pytest.raises(ValueError, match="bias"):
        Tolerance(kind, FLOOR, "a reason", **options)
