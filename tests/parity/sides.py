"""Run one function on both frameworks and assert that its value and its gradients agree.

    assert_parity(paddle_function, torch_function, inputs)

Inputs are float arrays of one precision; each side gets them as leaves. What is differentiated is
the sum of the value with fixed random weights (one weight where it is a scalar). Values that are
made in another way are compared by ``assert_same``, name by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import torch

FLOAT64 = 1e-10  # rounding of a deep network is 1e-13 of the scale, a wrong formula above 1e-9
FLOAT32 = 2e-6  # sixteen roundings of float32, of the scale
FLOAT32_SUMS = 1e-5  # sums of hundreds of float32 numbers, whose rounding is below 1e-6
BOUNDS = {"float64": FLOAT64, "float32": FLOAT32}


def assert_parity(
    paddle_function: Callable[..., paddle.Tensor],
    torch_function: Callable[..., torch.Tensor],
    inputs: Sequence[np.ndarray],
    *,
    gradients: bool = True,
    bound: float | None = None,
) -> None:
    """Assert that both functions give the same value and the same gradient of every input.

    Args:
        paddle_function: of Paddle tensors, one for each input.
        torch_function: of PyTorch tensors, one for each input.
        inputs: arrays of one floating dtype.
        gradients: whether they are compared too.
        bound: as of ``assert_same``.
    """
    assert_same(
        on_paddle(paddle_function, inputs, gradients=gradients),
        on_torch(torch_function, inputs, gradients=gradients),
        bound=bound,
    )


def assert_same(
    paddle_values: Mapping[str, Any],
    torch_values: Mapping[str, Any],
    *,
    bound: float | None = None,
    finite: bool = True,
) -> None:
    """Assert that arrays have the same names, shapes, dtypes and values; none is empty.

    Args:
        paddle_values: arrays, numbers or lists of ours by name.
        torch_values: the reference's by the same names.
        bound: of floats, as a share of the reference's largest finite value (of 1 where that is
            zero); None for the precision's in ``BOUNDS``. All else has to be equal.
        finite: whether NaN and infinity fail; else they have to be at the same places.
    """
    assert torch_values
    assert sorted(paddle_values) == sorted(torch_values)
    for name, torch_value in torch_values.items():
        actual, expected = np.asarray(paddle_values[name]), np.asarray(torch_value)
        assert expected.size, f"{name} is empty"
        assert actual.shape == expected.shape, name
        if expected.dtype.kind not in "US":  # the dtype of strings holds their length
            assert actual.dtype == expected.dtype, name
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(actual, expected, err_msg=name)
            continue
        assert not finite or np.isfinite(expected).all(), f"{name} is not finite"
        allowed = BOUNDS[expected.dtype.name] if bound is None else bound
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0) or 1.0
        np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed * scale, err_msg=name)


def on_paddle(
    function: Callable[..., paddle.Tensor], inputs: Sequence[np.ndarray], *, gradients: bool = True
) -> dict[str, np.ndarray]:
    """Compute value and gradients of a Paddle function in the precision of its inputs."""
    with paddle_precision(inputs[0].dtype.name):
        leaves = [paddle.to_tensor(array, stop_gradient=False) for array in inputs]
        value = function(*leaves)
        if gradients:
            (value * paddle.to_tensor(_random_weights(value))).sum().backward()
    return _named(value.numpy(), [leaf.grad for leaf in leaves] if gradients else [])


def on_torch(
    function: Callable[..., torch.Tensor], inputs: Sequence[np.ndarray], *, gradients: bool = True
) -> dict[str, np.ndarray]:
    """Compute value and gradients of a PyTorch function in the precision of its inputs."""
    with torch_precision(inputs[0].dtype.name):
        leaves = [torch.tensor(array, requires_grad=True) for array in inputs]
        value = function(*leaves)
        if gradients:
            (value * torch.tensor(_random_weights(value))).sum().backward()
    return _named(value.detach().numpy(), [leaf.grad for leaf in leaves] if gradients else [])


@contextlib.contextmanager
def paddle_precision(dtype: str) -> Iterator[None]:
    """Build and run Paddle layers in ``dtype``; restore the default dtype afterwards."""
    previous = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(previous)


@contextlib.contextmanager
def torch_precision(dtype: str) -> Iterator[None]:
    """Build and run PyTorch modules in ``dtype``; restore the default dtype afterwards."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def _random_weights(value: Any) -> np.ndarray:
    dtype = str(value.dtype).rpartition(".")[2]
    return np.random.default_rng(6).normal(size=tuple(value.shape)).astype(dtype)


def _named(value: np.ndarray, gradients: Sequence[Any]) -> dict[str, np.ndarray]:
    """Name the value and the gradients; an input that has none has no name."""
    named = {"value": value}
    for index, gradient in enumerate(gradients):
        if gradient is not None:
            named[f"gradient {index}"] = gradient.numpy()
    return named
