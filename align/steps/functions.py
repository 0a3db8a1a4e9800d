"""Steps ``forward`` and ``backward`` of a pure function: its value, and the gradient of its input.

The gradient is that of ``sum(w * f(x))`` with random weights w.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align import paddle_side, torch_side
from align.bounds import TOLERANCES
from align.comparator import compare_mappings
from align.context import Context
from align.controls import judge
from align.function_case import FunctionCase
from align.results import Comparison, StepResult
from align.sides import Arrays
from sot_paddle import functional as ours_module
from sot_torch_ref import functional as reference_module

_SEED = 5


def run_forward(case: FunctionCase, dtype: str, context: Context) -> StepResult:
    """Compare the values of a function."""
    return _run(case, dtype, "forward", lambda value, gradient: {"value": value})


def run_backward(case: FunctionCase, dtype: str, context: Context) -> StepResult:
    """Compare the gradients of a function's input."""
    return _run(case, dtype, "backward", lambda value, gradient: {"(input)": gradient})


def _run(case: FunctionCase, dtype: str, step: str, pick: Callable[..., Arrays]) -> StepResult:
    x = np.random.default_rng(_SEED).normal(size=case.shape).astype(dtype)
    *expected, reference_stamp = _reference(case, x)
    *found, ours_stamp = _ours(case.function, case.options, x)
    reference = pick(*expected)

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES[step, dtype])

    *mistaken, _ = _ours(*case.mistaken_for, x)
    title = f"{case.mistaken_for[0]} {dict(case.mistaken_for[1]) or ''}".strip()
    return StepResult(
        case.name,
        step,
        dtype,
        compare(pick(*found)),
        [judge(f"computed as {title}", compare(pick(*mistaken)), case.function)],
        stamps={"ours": ours_stamp, "reference": reference_stamp},
    )


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(_SEED + 1).normal(size=shape)


def _ours(
    function: str, options: Mapping[str, Any], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """Value, gradient of the input, and stamp of the Paddle side."""
    leaf = paddle.to_tensor(x, stop_gradient=False)
    value = getattr(ours_module, function)(leaf, **options)
    weights = paddle.to_tensor(_weights(tuple(value.shape)).astype(x.dtype))
    (value * weights).sum().backward()
    return value.detach().numpy(), leaf.grad.numpy(), paddle_side.stamp(value)


def _reference(
    case: FunctionCase, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """The same of the reference."""
    leaf = torch.from_numpy(x).requires_grad_(True)
    value = getattr(reference_module, case.function)(leaf, **case.options)
    (value * torch.from_numpy(_weights(tuple(value.shape)).astype(x.dtype))).sum().backward()
    return value.detach().numpy(), leaf.grad.numpy(), torch_side.stamp(value)
