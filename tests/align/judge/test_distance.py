"""Distances piece by piece: the numbers of whole arrays, in every memory layout."""

import math

import numpy as np
import pytest

from align.judge import comparator
from align.judge.comparator import Gap, compare_arrays, pieces
from align.pair.any_pair import exact_in_float32
from align.record.results import Tolerance

RNG = np.random.default_rng(5)
LAYOUTS = {
    "C order": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch) -> None:
    monkeypatch.setattr(comparator, "PIECE", 7)


def test_pieces_of_a_scalar_and_of_nothing() -> None:
    assert [piece.tolist() for piece in pieces(np.float64(2.5).reshape(()))] == [[2.5]]
    assert list(pieces(np.zeros((0, 3)))) == []
    assert [piece.size for piece in pieces(np.zeros((2, 0)))] in ([], [0])


@pytest.mark.parametrize("ours", LAYOUTS)
@pytest.mark.parametrize("theirs", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(5, 4), (3, 20), (23,), (2, 3, 4), (1, 1)])
def test_a_gap_is_what_whole_arrays_give(ours, theirs, dtype, shape) -> None:
    a, b, o = (RNG.normal(size=shape).astype(d) for d in (dtype, dtype, "float64"))
    found = Gap.between(LAYOUTS[ours](a), LAYOUTS[theirs](o), LAYOUTS[theirs](b))
    apart, peer = np.abs(a.astype("float64") - o), np.abs(b.astype("float64") - o)
    assert found.largest == apart.max()
    assert found.position == apart.argmax()
    assert found.peak == np.abs(o).max() == found.size("max")
    assert found.peer.largest == peer.max() == found.peer.distance("max")
    for mine, whole in (
        (found.distance("l2"), apart),
        (found.size("l2"), o),
        (found.peer.distance("l2"), peer),
    ):
        assert mine == pytest.approx(np.linalg.norm(whole), rel=1e-14)
    assert found.finite


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(3))
def test_what_is_not_finite_is_met_in_any_piece_of_any_side(bad, place) -> None:
    sides = [RNG.normal(size=(5, 4)) for _ in range(3)]
    assert Gap.between(*sides).finite
    sides[place][4, 1] = bad
    assert not Gap.between(*sides).finite
    rule = Tolerance("oracle", 1e-3, "three sides", factor=4.0)
    a, o, b = sides
    refused = compare_arrays("tap", a, b, rule, oracle=o)
    assert not refused.passed
    assert refused.position == (4, 1)
    assert ("NaN" if math.isnan(bad) else "infinity") in refused.reason


def test_equal_infinities_are_zero_apart() -> None:
    a = np.asarray([1.0, math.inf, -math.inf])
    assert Gap.between(a, a).largest == 0.0
    assert not Gap.between(a, a).finite


def test_the_first_of_equally_bad_elements_is_named() -> None:
    a, b = np.zeros((4, 5)), np.zeros((4, 5))
    a[1, 2] = a[3, 4] = 0.5
    assert Gap.between(a, b).position == 7


def test_float32_holds_every_number_or_not() -> None:
    a = RNG.normal(size=(4, 5)).astype("float32").astype("float64")
    assert exact_in_float32(a)
    assert exact_in_float32(np.asarray([math.nan, math.inf, 0.0]))
    assert exact_in_float32(np.asarray([2**60 + 1]))  # whole numbers stay what they are
    a[3, 3] += 1e-12
    assert not exact_in_float32(a)
    assert not exact_in_float32(np.asarray([1e300]))
