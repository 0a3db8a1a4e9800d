"""Step ``forward`` of a model's plain call: no mask, no token types, no taps; its logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.context import Context
from align.cases.kinds.case_kinds_calls import PlainCallCase
from align.cases.planted_controls import MODEL_FAULTS, judge, planted
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult

_INPUTS = ("input_ids", "images")
"""What a plain call gives, whichever of them the batch has."""


def run(case: PlainCallCase, dtype: str, context: Context) -> StepResult:
    """Compare the logits of ``model(input_ids)`` or ``model(images)``."""
    pair = context.pair(case, dtype)
    given = next(pair.batch[name] for name in _INPUTS if name in pair.batch)
    reference, stamp = _plain_torch(pair.fresh_reference(), given, dtype)
    ours, ours_stamp = _plain_paddle(pair.ours, given, dtype)

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES["forward", dtype])

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
