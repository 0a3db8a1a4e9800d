"""The bound that rounding explains: its rate of false alarms, its power, its laziness, its file."""

import contextlib

import numpy as np
import pytest
from scipy import stats

from align.judge import noise_band
from align.judge.comparator import CEILING, compare_arrays
from align.judge.noise_band import (
    FEW,
    FLOOR,
    KERNELS,
    ONE_DIRECTION,
    RUNS,
    Errors,
    NoiseBand,
    factor,
    joined,
)
from align.record.results import Tolerance

BAND = Tolerance("band", FLOOR, "the band of the tests")
WHOLE = Tolerance("band", FLOOR, "the same for whole tensors", norm="l2")
SCALED = Tolerance("scaled", 1e-10, "a float64 rule")
RNG = np.random.default_rng(5)


def band_of(errors, centre, made=None):
    """A band whose moved runs are off by the given errors (RUNS, n); ``made`` counts them."""

    def moved(asked):
        if made is not None:
            made.append(asked.number)
        return contextlib.nullcontext({"taps": {"t": centre + errors[asked.number]}})

    return NoiseBand(lambda: {"taps": {"t": centre}}, moved)


def settled(band, measured):
    """A failed comparison of the one tensor, judged by the moved runs."""
    return band.settle(measured, lambda spreads: spreads.get(("taps", "t")))


def allowed(errors, centre, norm):
    return band_of(errors, centre).measured(RUNS)["taps", "t"].allowed(norm)


def test_the_factor_of_one_direction_is_students_t_and_never_below_the_kernels():
    assert factor(1.0) == pytest.approx(stats.t.isf(noise_band.FALSE_ALARM / 2, RUNS))
    quantile = stats.f.isf(noise_band.FALSE_ALARM, 2.5, RUNS * 2.5)
    assert factor(2.5) == pytest.approx(quantile**0.5, rel=1e-9)
    assert factor(1.0) > factor(1.5) > factor(3.0) > KERNELS
    assert factor(1000.0) == KERNELS
    assert factor(1.0) <= ONE_DIRECTION < 1.001 * factor(1.0)


@pytest.mark.parametrize("rank", [1, 2, 40])
@pytest.mark.long
def test_right_code_fails_no_more_often_than_stated(monkeypatch, rank):
    """At a rate of one in fifty, which a test can count: Gaussian errors of a known rank."""
    monkeypatch.setattr(noise_band, "FALSE_ALARM", 0.02)
    monkeypatch.setattr(noise_band, "KERNELS", 1.0)
    rounds, alarms, late = 2000, 0, 0
    centre = np.ones(300)
    for _ in range(rounds):
        directions = RNG.normal(size=(rank, 300))
        errors = RNG.normal(size=(RUNS + 1, rank)) @ directions * 1e-6
        distance = np.linalg.norm(errors[0])
        spreads = Errors()
        for error in errors[1:]:
            spreads.add(centre + error, centre)
        alarms += distance > spreads.spread().allowed("l2")
        rule = Tolerance("scaled", 0.0, "no floor", norm="l2")
        measured = compare_arrays("t", centre + errors[0], centre, rule)
        late += not settled(band_of(errors[1:], centre), measured).passed
    # 40 are expected; a binomial count above 80 has a probability of 1e-8
    assert late <= alarms <= 80
    assert rank > 1 or alarms >= 10  # and for one direction the quantile is no wider than needed


@pytest.mark.parametrize(("rank", "most"), [(1, ONE_DIRECTION), (200, KERNELS)])
def test_the_directions_of_the_error_are_found_from_the_angles(rank, most):
    centre = np.ones(5000)
    errors = RNG.normal(size=(RUNS, rank)) @ RNG.normal(size=(rank, 5000)) * 1e-7
    scatter = np.sqrt(np.mean(np.linalg.norm(errors, axis=1) ** 2))
    assert allowed(errors, centre, "l2") / scatter == pytest.approx(most, rel=0.03)
    largest = np.sqrt(np.mean(np.abs(errors).max(axis=1) ** 2))
    assert allowed(errors, centre, "max") / largest == pytest.approx(most, rel=0.03)


def test_runs_without_an_error_count_as_one_direction():
    errors = np.zeros((RUNS, 10))
    errors[0] = 1e-7
    found = allowed(errors, np.ones(10), "max")
    assert found == pytest.approx(factor(1.0) * 1e-7 / np.sqrt(RUNS), rel=1e-6)


@pytest.mark.parametrize(("off", "runs"), [(5e-7, 0), (3e-6, FEW), (6e-6, RUNS), (6e-5, RUNS)])
def test_no_more_runs_are_made_than_the_answer_needs(off, runs):
    """A single number: 4 x 1e-6 after the first runs, 30 x 1e-6 after the last."""
    made = []
    errors = np.full((RUNS, 1), 1e-6) * np.resize([1, -1], RUNS)[:, None]
    sides = np.array([1.0 + off], np.float32), np.ones(1, np.float32)
    measured = compare_arrays("t", *sides, BAND, oracle=np.ones(1))
    found = settled(band_of(errors, np.ones(1), made), measured)
    assert made == list(range(runs))
    assert found.passed == (off < 30e-6)


@pytest.mark.parametrize(("dtype", "rule"), [("float32", BAND), ("float64", SCALED)])
@pytest.mark.parametrize("norm", ["max", "l2"])
def test_an_error_of_a_kernel_passes_and_one_ten_times_as_large_fails(dtype, rule, norm):
    """Rounding that the floor does not hold, and a fault of ten times as much beside it."""
    rough = 100 * rule.value / KERNELS  # of the moved runs, such as behind a rough layer
    rule = Tolerance(rule.kind, rule.value, rule.why, norm=norm)
    centre = RNG.normal(size=400)
    band = band_of(RNG.normal(size=(RUNS, 400)) * rough, centre)

    def judged(times):
        ours = (centre + times * rough * RNG.normal(size=400)).astype(dtype)
        oracle = centre if rule.kind == "band" else None
        reference = centre.astype(dtype)
        return settled(band, compare_arrays("t", ours, reference, rule, oracle=oracle))

    assert judged(2.0).passed
    assert judged(2.0).tolerance.kind == "band"
    assert not judged(10 * KERNELS).passed
    assert "is allowed" in judged(10 * KERNELS).reason


def judged(off, noise=None, **options):
    """One distance against a band of moved runs that are ``noise`` off, in many directions."""
    o = np.linspace(1, 2, 800)
    ours = (o * (1 + off)).astype(np.float32)
    errors = RNG.normal(size=(RUNS, 800))
    band = None if noise is None else band_of(noise * errors / np.abs(errors).max(), o)
    found = compare_arrays("t", ours, o.astype(np.float32), BAND, oracle=o)
    if band is None:
        return found
    return band.settle(found, lambda spreads: spreads.get(("taps", "t")), **options)


def test_a_tensor_within_the_band_passes_and_beyond_it_fails():
    assert judged(1e-5, 1e-5).passed
    assert not judged(1e-4, 1e-5).passed
    assert not judged(1e-5).passed  # without noise the floor holds
    assert judged(5e-7).passed


def test_the_plain_run_is_a_draw_where_it_is_well_conditioned():
    o = np.linspace(1, 2, 8)
    rule = Tolerance("band", FLOOR, "with a factor", factor=KERNELS)

    def passed(off, own):
        sides = ((o * (1 + by)).astype(np.float32) for by in (off, own))
        return compare_arrays("t", *sides, rule, oracle=o).passed

    assert passed(3e-5, 1e-5)
    assert not passed(5e-5, 1e-5)
    assert not passed(3e-2, 1e-2)  # what PyTorch itself does not know is left to the moved runs


def test_a_band_that_judges_nothing_is_refused_and_says_what_to_do():
    refused = judged(1e-3, 2 * CEILING)
    assert not refused.passed
    assert "choose better conditioned inputs" in refused.reason
    assert not judged(0.5, 2 * CEILING).passed
    assert judged(1e-3, 2 * CEILING, widest=0.25).passed


def test_a_tensor_of_rounding_alone_is_judged_by_the_size_of_its_kind():
    zero = {"zero_scale": 1e5}
    assert judged(-1.2, 1.0, **zero).passed
    assert judged(-1.2, 1.0, **zero).unit == "zero_scale"
    assert not judged(-19.0, 1.0, **zero).passed
    assert not judged(-1.2, 1e3, **zero).passed  # more than rounding may decide about


def test_a_band_comes_back_from_its_arrays():
    centre = RNG.normal(size=(6, 5))
    band = band_of(RNG.normal(size=(RUNS, 6, 5)) * 1e-7, centre)
    again = NoiseBand.stored(band.to_store())
    own, found = (one.measured(RUNS)["taps", "t"] for one in (band, again))
    assert (own.factor, own.largest) == (found.factor, found.largest)
    np.testing.assert_array_equal(own.rows, found.rows)
    parts = [found.part(i, 3) for i in range(3)]
    assert {part.factor for part in parts} == {max(ONE_DIRECTION, found.factor)}
    assert joined(parts).size("l2") == pytest.approx(found.size("l2"))
    assert joined([found]) is found
    with pytest.raises(ValueError, match="noise of taps/t"):
        NoiseBand.stored({"taps/t": np.zeros((2, 3))})


def test_masks_and_other_shapes_say_nothing():
    centre = np.array([1.0, -1e38, -np.inf, 2.0])
    runs = [np.array([1.0 + 1e-7, -1.1e38, -np.inf, np.nan]), centre[:2]]
    band = NoiseBand(
        lambda: {"taps": {"t": centre, "gone": centre, "ids": np.arange(3)}},
        lambda asked: contextlib.nullcontext(
            {"taps": {"t": runs[asked.number], "ids": np.arange(3)}}
        ),
    )
    spreads = band.measured(FEW)
    assert list(spreads) == [("taps", "t")]
    assert spreads["taps", "t"].size("max") == pytest.approx(1e-7, rel=1e-6)


@pytest.mark.parametrize(
    "options", [{"kind": "scaled", "bias": 0.1}, {"kind": "band", "bias": 1.5}]
)
def test_a_bias_that_means_nothing_is_refused(options):
    kind = options.pop("kind")
    with pytest.raises(ValueError, match="bias"):
        Tolerance(kind, FLOOR, "a reason", **options)
