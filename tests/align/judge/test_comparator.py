"""The comparator: every rule is seen failing, and passing next to it."""

import math

import numpy as np
import pytest

from align.judge.comparator import compare_arrays, compare_mappings
from align.record.results import Tolerance

SCALED = Tolerance("scaled", 1e-10, "float64 rounding is far below")
EXACT = Tolerance("exact", 0.0, "ids are whole numbers")
ORACLE = Tolerance("oracle", 1e-6, "four times PyTorch's own distance", factor=4.0)


@pytest.fixture
def reference():
    return np.random.default_rng(7).standard_normal((3, 4))


def compare(ours, reference, tolerance=SCALED, **keywords):
    return compare_arrays("tap", ours, reference, tolerance, **keywords)


def test_equal_arrays_pass_with_distance_zero(reference):
    result = compare(reference.copy(), reference)
    assert result.passed
    assert result.worst == 0.0
    assert result.reason == ""
    assert result.scale == np.abs(reference).max()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sides", ["Paddle", "PyTorch", "both"])
def test_non_finite_fails_with_side_and_position(reference, bad, sides):
    ours, theirs = reference.copy(), reference.copy()
    if sides != "PyTorch":
        ours[0, 3] = bad
    if sides != "Paddle":
        theirs[0, 3] = bad
    result = compare(ours, theirs)
    assert not result.passed
    assert result.position == (0, 3)
    word = "NaN" if math.isnan(bad) else "infinity"
    place = "Paddle and the PyTorch" if sides == "both" else sides
    assert f"{word} at (0, 3) on the {place} side" in result.reason
    assert math.isnan(result.worst) == math.isnan(bad)


def test_equal_infinities_fail():
    mask = np.array([0.0, -np.inf])
    assert not compare(mask, mask.copy(), EXACT).passed


@pytest.mark.parametrize("shape", [(4, 3), (12,), (1, 3, 4), (2, 6)])
def test_another_shape_fails(reference, shape):
    result = compare(reference.reshape(shape), reference)
    assert not result.passed
    assert f"shape {shape} on the Paddle side against (3, 4)" in result.reason


def test_broadcastable_shapes_fail():
    assert "shape" in compare(np.ones((1, 4)), np.ones((3, 4))).reason
    assert not compare(np.ones(()), np.ones((1,))).passed


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_another_dtype_fails(dtype):
    result = compare(np.ones((2, 3), dtype), np.ones((2, 3)))
    assert not result.passed
    assert result.reason.startswith(f"dtype {dtype}")
    assert not compare(np.ones(3, "uint8"), np.ones(3, "int8"), EXACT).passed


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "missing on the Paddle side"),
        ([1.0, 2.0], "a list on the Paddle side"),
        (np.array([None, 1]), "dtype object"),
        (np.array(["a", "b"]), "dtype <U1"),
        (np.ma.masked_array([1.0, 9.0], [False, True]), "masked array"),
    ],
)
def test_what_is_no_array_of_numbers_fails(value, word):
    result = compare(value, np.array([1.0, 2.0]))
    assert not result.passed
    assert word in result.reason


def test_zero_size_fails():
    result = compare(np.zeros((0, 4)), np.zeros((0, 4)))
    assert not result.passed
    assert "zero elements" in result.reason


def test_one_element_off_in_a_million_is_found():
    reference = np.random.default_rng(1).uniform(-1, 1, (1000, 1000))
    ours = reference.copy()
    ours[123, 456] += 1e-9
    result = compare(ours, reference)
    assert not result.passed
    assert result.position == (123, 456)
    assert "1 of 1,000,000 elements" in result.hint
    assert result.max_abs == pytest.approx(1e-9, rel=1e-6)


RELATIVE = Tolerance("relative", 1e-6, "a schedule")
FLOORED = Tolerance("relative", 1e-6, "a schedule that ends at 0", floor=1e-9)
SMALL = 1e-8 * np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("rule", "ours", "reference", "passes"),
    [
        (SCALED, SMALL * (1 + 1e-9), SMALL, False),
        (SCALED, SMALL * (1 + 1e-11), SMALL, True),
        (Tolerance("absolute", 1e-14, "units"), SMALL + 1e-15, SMALL, True),
        (SCALED, np.full(3, 9e-11), np.zeros(3), True),  # a zero reference: absolutely
        (SCALED, np.full(3, 2e-10), np.zeros(3), False),
        (RELATIVE, np.array([1.0, 1.1e-9]), np.array([1.0, 1e-9]), False),
        (RELATIVE, np.array([1.0 + 5e-7, 1e-9]), np.array([1.0, 1e-9]), True),
        (RELATIVE, np.array([1.0, 0.0]), np.array([1.0, 0.0]), True),
        (FLOORED, np.array([1.0, 1e-30]), np.array([1.0, 0.0]), True),
        (EXACT, np.array([2**53, 5]), np.array([2**53, 5]), True),  # beyond float64
        (EXACT, np.array([2**53 + 1, 5]), np.array([2**53, 5]), False),
        (EXACT, np.array([True, False]), np.array([True, True]), False),
        (EXACT, np.array([0], "uint8"), np.array([255], "uint8"), False),
    ],
)
def test_a_rule_is_seen_failing_and_passing(rule, ours, reference, passes):
    assert compare(ours, reference, rule).passed is passes


def test_what_is_not_zero_where_the_reference_is_fails_relatively():
    nonzero = compare(np.array([1.0, 1e-30]), np.array([1.0, 0.0]), RELATIVE)
    assert not nonzero.passed
    assert "where the reference is" in nonzero.reason


class TestOracle:
    """float32 arrays judged by a float64 run."""

    @pytest.fixture
    def arrays(self):
        oracle = np.random.default_rng(3).standard_normal((5, 7))
        oracle[1, 2] = 4.0
        return oracle, oracle.astype(np.float32), oracle.astype(np.float32)

    def test_the_factor_is_the_limit(self, arrays):
        oracle, ours, theirs = arrays
        theirs[1, 2] += np.float32(1e-3)
        ours[3, 4] += np.float32(3.9e-3)
        good = compare(ours, theirs, ORACLE, oracle=oracle)
        assert good.passed
        assert good.peer == pytest.approx(1e-3 / 4, rel=1e-3)
        assert good.bound == pytest.approx(4 * good.peer)
        ours[3, 4] += np.float32(0.3e-3)
        bad = compare(ours, theirs, ORACLE, oracle=oracle)
        assert not bad.passed
        assert bad.position == (3, 4)
        assert "the float64 oracle's" in bad.reason

    def test_the_floor_holds_when_pytorch_is_exact(self, arrays):
        oracle, ours, _ = arrays
        exact = ours.astype(np.float64)
        assert compare(ours, ours.copy(), ORACLE, oracle=exact).peer == 0.0
        near, far = ours.copy(), ours.copy()
        near[1, 2] += np.float32(3e-6)
        far[1, 2] += np.float32(6e-6)
        assert compare(near, ours, ORACLE, oracle=exact).passed
        assert not compare(far, ours, ORACLE, oracle=exact).passed

    def test_the_l2_norm_measures_both_sides(self, arrays):
        oracle, ours, theirs = arrays
        rule = Tolerance("oracle", 1e-6, "gradients", norm="l2", factor=4.0)
        theirs += np.float32(1e-4)
        ours[0, 0] += np.float32(1e-3)  # beyond 4 x in the max norm, within in the L2 norm
        result = compare(ours, theirs, rule, oracle=oracle)
        assert result.passed
        error = np.linalg.norm(ours - oracle) / np.linalg.norm(oracle)
        assert result.worst == pytest.approx(error, rel=1e-12)
        assert not compare(ours, theirs, ORACLE, oracle=oracle).passed

    def test_a_gradient_that_is_zero_in_theory(self, arrays):
        noise = np.full((5, 7), 1e-18)
        ours, theirs = np.full((5, 7), 5e-8, "float32"), np.full((5, 7), 1e-9, "float32")
        good = compare(ours, theirs, ORACLE, oracle=noise, zero_scale=1.0)
        assert good.passed
        assert good.scale == 1.0
        assert not compare(ours * 100, theirs, ORACLE, oracle=noise, zero_scale=1.0).passed
        assert not compare(ours, theirs, ORACLE, oracle=noise).passed
        noisy = np.full((5, 7), 1e-6, "float32")  # PyTorch's own noise does not widen the limit
        assert not compare(noisy * 2, noisy, ORACLE, oracle=noise, zero_scale=1.0).passed
        assert compare(noise, -noise, SCALED, zero_scale=1.0).passed
        assert not compare(noise, -noise, SCALED).passed

    def test_a_bound_that_admits_anything_fails(self, arrays):
        oracle, ours, theirs = arrays
        result = compare(ours, theirs * np.float32(1.5), ORACLE, oracle=oracle)
        assert not result.passed
        assert "would prove nothing" in result.reason

    def test_a_missing_or_poor_oracle_fails(self, arrays):
        oracle, ours, theirs = arrays
        assert "float64 oracle" in compare(ours, theirs, ORACLE).reason
        assert compare(ours, theirs, ORACLE, oracle=oracle.astype("float32")).reason == ""
        oracle[2, 2] = np.nan
        assert "NaN at (2, 2)" in compare(ours, theirs, ORACLE, oracle=oracle).reason
        assert "shape" in compare(ours, theirs, ORACLE, oracle=oracle[:2]).reason


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda x: x.T, "looks transposed"),
        (lambda x: 3 * x, "is 3.000 x the reference"),
        (lambda x: -x, "has the opposite sign"),
        (lambda x: np.roll(x, 1, 0), "looks shifted by one along axis 0 (ours comes one position"),
        (lambda x: np.roll(x, -1, 1), "looks shifted by one along axis 1"),
        (lambda x: x[:, ::-1], "looks reversed along axis 1"),
        (lambda x: x + 0.25, "is the reference plus 0.25 everywhere"),
        (lambda x: x[[2, 0, 4, 1, 3]], "a permutation"),
        (lambda x: 0 * x, "is all zeros"),
        (lambda x: x + np.eye(1, 5, 2), "elements are out of tolerance, all at index 2 of axis 1"),
    ],
)
def test_a_difference_is_recognised(change, hint):
    reference = np.random.default_rng(11).standard_normal((5, 5))
    result = compare(np.ascontiguousarray(change(reference)), reference)
    assert not result.passed
    assert hint in result.hint


def test_shapes_are_diagnosed(reference):
    assert compare(reference.T, reference).hint == "looks transposed"
    assert "only the shape differs" in compare(reference.reshape(2, 6), reference).hint
    assert "along axis 1" in compare(reference[:, :2], reference).hint


class TestMappings:
    """Names on both sides."""

    def test_missing_and_extra_names_fail(self):
        one = np.ones(2)
        missing, both, extra = compare_mappings({"b": one, "c": one}, {"a": one, "b": one}, SCALED)
        assert (missing.name, missing.reason) == ("a", "missing on the Paddle side")
        assert both.passed
        assert (extra.name, extra.reason) == ("c", "missing on the PyTorch side")

    def test_what_is_empty_on_both_sides_is_left_out(self):
        nothing = {"t": np.ones((2, 0))}
        assert not list(compare_mappings({}, {}, SCALED))
        assert not list(compare_mappings(nothing, nothing, SCALED))
        (result,) = compare_mappings(nothing, {}, SCALED)
        assert result.reason == "missing on the PyTorch side"

    def test_order_is_execution_order(self):
        arrays = {"c": np.ones(2), "a": np.ones(2), "b": np.ones(2)}
        names = [c.name for c in compare_mappings(dict(sorted(arrays.items())), arrays, SCALED)]
        assert names == ["c", "a", "b"]

    def test_a_tolerance_per_name_and_an_oracle(self):
        ours = {"ids": np.array([1, 2]), "out": np.array([1.0, 2.0], "float32")}
        rules = {"ids": EXACT, "out": ORACLE}
        oracle = {"out": np.array([1.0, 2.0])}
        results = compare_mappings(ours, ours, rules.__getitem__, oracle=oracle)
        assert [c.passed for c in results] == [True, True]
        without = compare_mappings(ours, ours, rules.__getitem__, oracle={})
        assert [c.passed for c in without] == [True, False]

    def test_none_is_missing(self):
        (result,) = compare_mappings({"w.grad": None}, {"w.grad": None}, SCALED)
        assert result.reason == "missing on the Paddle side"


def test_what_is_too_small_for_float32_is_zero_for_it():
    oracle = np.full((2, 3), 2e-241)
    nothing, something = np.zeros((2, 3), np.float32), np.full((2, 3), 1e-38, np.float32)
    assert compare_arrays("x", nothing, nothing, ORACLE, oracle=oracle).passed
    assert not compare_arrays("x", something, nothing, ORACLE, oracle=oracle).passed
