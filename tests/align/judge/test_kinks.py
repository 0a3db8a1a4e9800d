"""What the moved runs of a band learn of its kinks from each other."""

import numpy as np
import pytest

from align.judge.noise_band import KERNELS, RUNS, next_run
from align.record.recording import MovedRun

RNG = np.random.default_rng(4)


def made(samples):
    """Moved runs that have met one kink, the fourth."""
    return [MovedRun(number, met={3: sample}) for number, sample in enumerate(samples)]


def test_rounding_decides_within_a_few_standard_deviations_of_the_runs():
    centre = RNG.normal(size=1000)
    samples = [(centre + 1e-6 * RNG.normal(size=1000)).astype(np.float32) for _ in range(RUNS - 2)]
    assert next_run(made(samples)).reach == {3: pytest.approx(KERNELS * 1e-6, rel=0.1)}


@pytest.mark.parametrize(
    "samples",
    [
        [np.ones(4)] * (RUNS - 2),
        [np.ones(4), *[np.ones(3)] * (RUNS - 3)],
        [np.full(2, np.inf)] * (RUNS - 2),
    ],
)
def test_where_nothing_moves_or_can_be_compared_nothing_is_near(samples):
    assert next_run(made(samples)).reach == {3: 0.0}


def test_a_kink_that_one_run_alone_met_is_not_near():
    assert next_run([*made([RNG.normal(size=4)]), *map(MovedRun, range(1, RUNS - 2))]).reach == {
        3: 0.0
    }


def test_runs_learn_apart():
    MovedRun(0).met[0] = np.ones(2)
    assert MovedRun(1) == MovedRun(1, met={})
