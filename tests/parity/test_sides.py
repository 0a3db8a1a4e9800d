"""See the helper fail: on a value, a gradient, a name, a shape, a dtype, NaN, nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import paddle
import pytest
import torch

from tests.parity.sides import assert_parity, assert_same

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equal_functions_pass(dtype: str) -> None:
    assert_parity(lambda x: x * x, lambda x: x * x, [X.astype(dtype)])


WRONG_FUNCTIONS = {
    "another value": lambda x: x * x + 1e-8,
    "another gradient": lambda x: x * x + 2 * (x - x.detach()),
    "another gradient of a sum": lambda x: x.detach() * x,
    "another shape": lambda x: (x * x)[None],
    "another precision": lambda x: (x * x).astype("float32"),
}


@pytest.mark.parametrize("function", WRONG_FUNCTIONS.values(), ids=WRONG_FUNCTIONS)
def test_a_wrong_function_fails(function: Callable[[paddle.Tensor], paddle.Tensor]) -> None:
    with pytest.raises(AssertionError):
        assert_parity(function, lambda x: x * x, [X])


def test_gradients_are_left_out_when_asked() -> None:
    with pytest.raises(AssertionError, match="gradient 0"):
        assert_parity(lambda x: x.detach() * x, torch.square, [X])
    assert_parity(lambda x: x.detach() * x, torch.square, [X], gradients=False)


WRONG_VALUES = {
    "nothing": ({}, {}),
    "a name": ({"a": X}, {"b": X}),
    "a name more": ({"a": X, "b": X}, {"a": X}),
    "empty": ({"a": X[:0]}, {"a": X[:0]}),
    "not finite": ({"a": X + np.inf}, {"a": X + np.inf}),
    "a broadcast shape": ({"a": np.ones((2, 3))}, {"a": np.ones(3)}),
    "a dtype": ({"a": X.astype("float32")}, {"a": X}),
    "a dtype of integers": ({"a": np.int32(3)}, {"a": np.int64(3)}),
    "an integer": ({"a": 10**12 + 1}, {"a": 10**12}),
    "a string": ({"a": ["x", "y"]}, {"a": ["x", "z"]}),
}


@pytest.mark.parametrize(("paddle_values", "torch_values"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_wrong_values_fail(paddle_values: Mapping, torch_values: Mapping) -> None:
    with pytest.raises(AssertionError):
        assert_same(paddle_values, torch_values)


def test_infinities_at_equal_places_pass_when_asked() -> None:
    values = {"a": np.array([1.0, np.nan, -np.inf])}
    assert_same(values, values, finite=False)
    with pytest.raises(AssertionError):
        assert_same({"a": np.array([1.0, np.nan, np.inf])}, values, finite=False)
