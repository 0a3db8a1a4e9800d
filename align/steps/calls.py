"""Step ``forward`` of calls that no whole model makes: a model's plain call, a formula alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align import paddle_side, torch_side
from align.bounds import TOLERANCES
from align.case_kinds_calls import FormulaCase, PlainCallCase
from align.comparator import compare_mappings
from align.context import Context
from align.controls import MODEL_FAULTS, array_faults, judge, planted
from align.results import Comparison, ControlResult, StepResult
from align.sides import Arrays
from sot_paddle import functional as ours_functional
from sot_torch_ref import functional as reference_functional

_INPUTS = ("input_ids", "images")
"""What a plain call gives, whichever of them the batch has."""


def run_plain(case: PlainCallCase, dtype: str, context: Context) -> StepResult:
    """Compare the logits of ``model(input_ids)`` or ``model(images)``."""
    pair = context.pair(case, dtype)
    given = next(pair.batch[name] for name in _INPUTS if name in pair.batch)
    reference, stamp = _plain_torch(pair.fresh_reference(), given, dtype)
    ours, ours_stamp = _plain_paddle(pair.ours, given, dtype)

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, case.tolerance("forward", dtype))

    comparisons = compare(ours)
    controls = []
    for fault in MODEL_FAULTS:
        if fault.backward_only:
            continue
        with planted(fault, pair.ours) as where:
            if where is not None:
                faulty, _ = _plain_paddle(pair.ours, given, dtype)
                controls.append(judge(fault.name, compare(faulty), where))
    stamps = {"ours": ours_stamp, "reference": stamp}
    return StepResult(case.name, "forward", dtype, comparisons, controls, stamps=stamps)


def _plain_paddle(model: Any, given: np.ndarray, dtype: str) -> tuple[Arrays, Mapping[str, Any]]:
    with paddle_side.default_dtype(dtype), paddle.no_grad():
        logits = model(paddle.to_tensor(given))
    return {"logits": logits.numpy()}, paddle_side.stamp(logits)


def _plain_torch(model: Any, given: np.ndarray, dtype: str) -> tuple[Arrays, Mapping[str, Any]]:
    with torch_side.default_dtype(dtype), torch.no_grad():
        logits = model(torch.from_numpy(given))
    return {"logits": logits.numpy()}, torch_side.stamp(logits)


def run_formula(case: FormulaCase, dtype: str, context: Context) -> StepResult:
    """Compare a tensor function on random arrays."""
    arrays, mask = _drawn(case)
    expected, stamp = _formula_torch(case, arrays, mask)
    ours, ours_stamp = _formula_paddle(case, arrays, mask, case.options)

    def compare(found: Arrays) -> list[Comparison]:
        return compare_mappings(found, expected, TOLERANCES["forward", dtype])

    comparisons = compare(ours)
    bounds = {c.name: c.bound * c.scale for c in comparisons}
    controls: list[ControlResult] = [
        judge(name, compare(faulty), case.function)
        for name, faulty in array_faults(ours, bounds).items()
    ]
    if case.fault is not None:
        faulty, _ = _formula_paddle(case, arrays, mask, case.fault)
        controls.append(judge("another option", compare(faulty), case.function))
    stamps = {"ours": ours_stamp, "reference": stamp}
    return StepResult(case.name, "forward", dtype, comparisons, controls, stamps=stamps)


def _drawn(case: FormulaCase) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Arrays (4, 7, 5), (4, 7, 6) ... normal with a mean; a mask with 7, 5, 1 and 0 valid rows."""
    rng = np.random.default_rng(11)
    arrays = [rng.normal(0.3, 1.0, (4, 7, 5 + index)) for index in range(case.inputs)]
    if case.symmetric:
        arrays = [np.matmul(array.transpose(0, 2, 1), array) for array in arrays]
    mask = np.arange(7)[None] < np.array([7, 5, 1, 0])[:, None] if case.masked else None
    return arrays, mask


def _formula_paddle(
    case: FormulaCase,
    arrays: list[np.ndarray],
    mask: np.ndarray | None,
    options: Mapping[str, Any],
) -> tuple[Arrays, Mapping[str, Any]]:
    given = {} if mask is None else {"mask": paddle.to_tensor(mask)}
    function = getattr(ours_functional, case.function)
    result = function(*(paddle.to_tensor(array) for array in arrays), **options, **given)
    return {case.function: result.numpy()}, paddle_side.stamp(result)


def _formula_torch(
    case: FormulaCase, arrays: list[np.ndarray], mask: np.ndarray | None
) -> tuple[Arrays, Mapping[str, Any]]:
    given = {} if mask is None else {"mask": torch.from_numpy(mask)}
    function = getattr(reference_functional, case.function)
    result = function(*(torch.from_numpy(array) for array in arrays), **case.options, **given)
    return {case.function: result.numpy()}, torch_side.stamp(result)
