"""Compare the functions of tensors that both packages have under one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import paddle
import pytest
import torch

from sot_paddle import functional as paddle_functions
from sot_torch_ref import functional as torch_functions
from tests.parity.sides import assert_parity

SEED = 5
TWO_TOKENS = ((4, 7, 5), (4, 7, 6))
MASK = np.arange(7)[None] < np.array([7, 5, 1, 0])[:, None]
FUNCTIONS: list[tuple[str, tuple[tuple[int, ...], ...], Mapping[str, Any]]] = [
    ("cross_covariance", TWO_TOKENS, {"centering": "none"}),
    ("cross_covariance", TWO_TOKENS, {"centering": "none", "mask": MASK}),
    ("sv_power_norm_exact", ((3, 6, 4),), {"alpha": 0.4}),
    # fewer samples than rows, and fewer rows than columns
    ("sv_power_norm", ((2, 3, 6), (6,)), {"num_iter": 3, "num_sv": None}),
    ("cov_forward", ((3, 5, 4, 2),), {}),
    ("cov_forward", ((3, 5, 4, 2),), {"scale": "tokens"}),
    ("triu_forward", ((3, 5, 5),), {}),
    ("triu_vectorize", ((3, 5, 5),), {}),
]


@pytest.mark.parametrize(("name", "shapes", "options"), FUNCTIONS)
def test_function_of_tensors(
    name: str, shapes: tuple[tuple[int, ...], ...], options: Mapping[str, Any]
) -> None:
    rng = np.random.default_rng(SEED)
    assert_parity(
        with_options(paddle_functions, name, options, paddle.to_tensor),
        with_options(torch_functions, name, options, torch.tensor),
        [rng.normal(size=shape) for shape in shapes],
    )


def with_options(
    package: ModuleType, name: str, options: Mapping[str, Any], to_tensor: Callable
) -> Callable:
    """Return a package's function with its options bound; arrays among them become tensors."""
    bound = {
        option: to_tensor(value) if isinstance(value, np.ndarray) else value
        for option, value in options.items()
    }
    return lambda *tensors: getattr(package, name)(*tensors, **bound)


ROOTS = [
    ("matrix_sqrt", {"num_iter": 1}, 0.0),
    ("matrix_sqrt", {"num_iter": 4}, 0.0),  # even: a sign that changes in each step shows
    ("matrix_sqrt_exact", {}, 0.0),
    ("matrix_sqrt_exact", {}, 3.0),  # eigenvalues cut at zero, where the gradient is infinite
]


@pytest.mark.parametrize(("name", "options", "shift"), ROOTS)
def test_root_of_a_symmetric_matrix(name: str, options: Mapping[str, Any], shift: float) -> None:
    """Of x^T x - shift I, by its value and the gradient of x."""
    identity = shift * np.eye(4)
    paddle_root = with_options(paddle_functions, name, options, paddle.to_tensor)
    torch_root = with_options(torch_functions, name, options, torch.tensor)
    assert_parity(
        lambda x: paddle_root(paddle.einsum("bnc,bnd->bcd", x, x) - paddle.to_tensor(identity)),
        lambda x: torch_root(torch.einsum("bnc,bnd->bcd", x, x) - torch.tensor(identity)),
        [np.random.default_rng(SEED).normal(size=(3, 7, 4))],
        gradients=not shift,
    )
