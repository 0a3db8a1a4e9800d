"""What the moved runs of a band learn of its kinks from each other."""

import numpy as np
import pytest

from align.judge.kinks import SIDES, Draw, Kinks
from align.judge.spread import KERNELS, RUNS

RNG = np.random.default_rng(4)


def test_the_last_two_runs_take_one_side_each():
    assert SIDES == {RUNS - 2: 1, RUNS - 1: -1}


def test_rounding_decides_within_a_few_standard_deviations_of_the_runs():
    kinks, centre = Kinks(), RNG.normal(size=1000)
    for _ in range(RUNS - 2):
        kinks.meet(3, (centre + 1e-6 * RNG.normal(size=1000)).astype(np.float32))
    assert kinks.reach(3) == pytest.approx(KERNELS * 1e-6, rel=0.1)
    assert kinks.reach(2) == 0.0


@pytest.mark.parametrize(
    "samples",
    [[np.ones(4)], [np.ones(4), np.ones(3)], [np.ones(4), np.ones(4)], [np.full(2, np.inf)] * 2],
)
def test_where_nothing_moves_or_can_be_compared_nothing_is_near(samples):
    kinks = Kinks()
    for sample in samples:
        kinks.meet(0, sample)
    assert kinks.reach(0) == 0.0


def test_bands_learn_apart():
    Draw(0).kinks.meet(0, np.ones(2))
    assert Draw(1).kinks == Kinks()
