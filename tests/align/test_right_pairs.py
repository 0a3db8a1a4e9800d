"""Drawn right ports pass, a wrong option of one is found; sizes up to thousands of rows."""

from __future__ import annotations

import pytest

from tests.align.right_pairs import judging
from tests.align.right_pairs.planted import KINDS
from tests.align.right_pairs.wiring import draw_pair

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of both frameworks' layers

RIGHT, WRONG = range(60), range(6)
MOST = 0.08
"""Of the size of a pair, beside the developers' command: the file takes about 40 seconds."""
AT_ONCE = 10


def test_a_seed_draws_the_same_pair_again() -> None:
    assert draw_pair(3).recipe() == draw_pair(3).recipe()
    assert draw_pair(3).recipe() != draw_pair(4).recipe()


@pytest.mark.parametrize("first", RIGHT[::AT_ONCE])
def test_right_pairs_pass(first: int) -> None:
    judged = [judging.judge_right(seed, MOST) for seed in range(first, first + AT_ONCE)]
    alarms = {one.seed: one for one in judged if one.said not in ("pass", "not right")}
    assert not alarms
    assert sum(one.said == "not right" for one in judged) <= 1


@pytest.mark.parametrize("seed", WRONG)
def test_a_wrong_option_is_found(seed: int) -> None:
    judged = judging.judge_wrong(seed, MOST)
    assert judged.said in ("fail", "no effect"), judged.to_json()


@pytest.mark.parametrize("seed", range(len(KINDS)), ids=KINDS)
def test_float32_shows_a_planted_fault(seed: int) -> None:
    judged = judging.judge_power(seed, MOST)
    assert judged.said == "fail", judged.to_json()
