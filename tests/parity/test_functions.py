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
    # fewer samples than rows, and fewer rows than columns
    ("sv_power_norm", ((2, 3, 6), (6,)), {"num_iter": 3, "num_sv": None}),
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


@pytest.mark.parametrize("num_iter", [1, 4])  # even: a sign that changes in each step shows
def test_root_of_a_symmetric_matrix(num_iter: int) -> None:
    """Of x^T x, by its value and the gradient of x."""
    assert_parity(
        lambda x: paddle_functions.matrix_sqrt(
            paddle.einsum("bnc,bnd->bcd", x, x), num_iter=num_iter
        ),
        lambda x: torch_functions.matrix_sqrt(
            torch.einsum("bnc,bnd->bcd", x, x), num_iter=num_iter
        ),
        [np.random.default_rng(SEED).normal(size=(3, 7, 4))],
    )
