"""Causes read off the tensors themselves: rows, factors, gradients that pass unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from align.explain.calls import readings
from align.judge.bounds import EXACT
from align.judge.comparator import compare_arrays
from align.pair.isolation import Guilty

RNG = np.random.default_rng(9)
TABLE = RNG.normal(size=(7, 4))
IDS = np.array([[1, 4, 2], [5, 0, 3]])


def guilty(ours: np.ndarray, expected: np.ndarray) -> Guilty:
    comparison = compare_arrays("x", np.array([1]), np.array([0]), EXACT)
    return Guilty("words", comparison, "words", ours=ours, expected=expected)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (IDS * 0, "Paddle takes row 0 everywhere: the numbers are ignored"),
        (IDS + 1, "Paddle's are off by +1"),
        (np.where(IDS == 4, 6, IDS), "1 of 6 differ (row 6 for 4)"),
    ],
)
def test_rows_that_were_looked_up(ids: np.ndarray, words: str) -> None:
    found = readings.rows(guilty(TABLE[ids], TABLE[IDS]), {"weight": TABLE})
    assert words in found


def test_rows_say_nothing_of_what_is_no_row() -> None:
    assert readings.rows(guilty(TABLE[IDS] * 1.5, TABLE[IDS]), {"weight": TABLE}) == ""
    assert readings.rows(guilty(TABLE[IDS], TABLE[IDS]), {"weight": TABLE}) == ""
    assert readings.rows(guilty(TABLE[IDS], TABLE[IDS]), {}) == ""


def test_a_factor_for_each_sample() -> None:
    x = RNG.normal(size=(3, 4, 5))
    found = readings.factors(x * np.array([0.5, 2.0, 1.0]).reshape(3, 1, 1), x)
    assert found.startswith("each index of axis 0 has a factor of its own (0.5, 2, 1)")
    assert readings.factors(x + RNG.normal(size=x.shape), x) == ""
    assert readings.factors(x * 2.0, x) == ""  # one factor for all has a hint of its own


def test_what_a_layer_did_with_a_gradient() -> None:
    arriving, right = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))
    assert "the graph is cut" in readings.leaving(arriving, np.zeros((2, 3)), right)
    assert "unchanged" in readings.leaving(arriving, arriving.copy(), right)
    assert readings.leaving(arriving, right * 2, right) == ""
