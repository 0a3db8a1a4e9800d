"""Steps ``forward`` and ``backward`` of a pure function: its value, and the gradient of its input.

The gradient is that of ``sum(w * f(x))`` with random weights w.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.context import Context
from align.cases.kinds.function_case import FunctionCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
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
    drawn = _drawn(case, dtype)
    *expected, reference_stamp = _reference(case, *drawn)
    *found, ours_stamp = _ours(case.function, case.options, *drawn)
    reference = pick(*expected)

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES[step, dtype])

    *mistaken, _ = _ours(*case.mistaken_for, *drawn)
    title = f"{case.mistaken_for[0]} {dict(case.mistaken_for[1]) or ''}".strip()
    return StepResult(
        case.name,
        step,
        dtype,
        compare(pick(*found)),
        [judge(f"computed as {title}", compare(pick(*mistaken)), case.function)],
        stamps={"ours": ours_stamp, "reference": reference_stamp},
    )


def _drawn(case: FunctionCase, dtype: str) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """The random inputs, and the mask (B, N) under its keyword where the case has one."""
    rng, (*outer, last) = np.random.default_rng(_SEED), case.shape
    inputs = [rng.normal(size=(*outer, last + index)).astype(dtype) for index in range(case.inputs)]
    if case.symmetric:
        inputs = [np.matmul(x.swapaxes(-1, -2), x) for x in inputs]
    valid = np.array(case.valid)[:, None]
    return inputs, {"mask": np.arange(outer[1])[None] < valid} if case.valid else {}


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(_SEED + 1).normal(size=shape)


def _ours(
    function: str,
    options: Mapping[str, Any],
    inputs: list[np.ndarray],
    mask: Mapping[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """Value, gradient of the first input, and stamp of the Paddle side."""
    leaf, *others = (paddle.to_tensor(x, stop_gradient=False) for x in inputs)
    given = {name: paddle.to_tensor(array) for name, array in mask.items()}
    value = getattr(ours_module, function)(leaf, *others, **options, **given)
    weights = paddle.to_tensor(_weights(tuple(value.shape)).astype(inputs[0].dtype))
    (value * weights).sum().backward()
    return value.detach().numpy(), leaf.grad.numpy(), paddle_side.stamp(value)


def _reference(
    case: FunctionCase, inputs: list[np.ndarray], mask: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """The same of the reference."""
    leaf, *others = (torch.from_numpy(x).requires_grad_(True) for x in inputs)
    given = {name: torch.from_numpy(array) for name, array in mask.items()}
    value = getattr(reference_module, case.function)(leaf, *others, **case.options, **given)
    weights = torch.from_numpy(_weights(tuple(value.shape)).astype(inputs[0].dtype))
    (value * weights).sum().backward()
    return value.detach().numpy(), leaf.grad.numpy(), torch_side.stamp(value)
