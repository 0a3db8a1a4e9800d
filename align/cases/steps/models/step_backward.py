"""Step ``backward``: the loss, every parameter's gradient and the running statistics."""

from __future__ import annotations

import dataclasses

import numpy as np

from align.cases.case_pair import CasePair, known_by_name, largest
from align.cases.context import Context
from align.cases.kinds.case_kinds import ModelCase
from align.cases.planted_controls import MODEL_FAULTS, judge, planted
from align.record.results import Comparison, ControlResult, StepResult

_FORWARD_FAULTS_HERE = 1  # the forward step runs them all; one shows that gradients see them too


def run(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare the gradients of a model case; see :class:`align.record.results.StepResult`."""
    pair = context.pair(case, dtype)
    losses = ({"loss": side.loss} for side in (pair.reference_pass, pair.ours_pass))
    context.log_classic("backward_align", f"{case.name}/{dtype}", *losses)
    comparisons = list(pair.compare_gradients(pair.ours_pass))
    controls = _array_controls(pair, comparisons)
    pair.forget_gradients()
    return StepResult(
        case.name,
        "backward",
        dtype,
        comparisons,
        [*_model_controls(pair), *controls],
        stamps={"ours": pair.ours_pass.stamp, "reference": pair.reference_pass.stamp},
    )


def _model_controls(pair: CasePair) -> list[ControlResult]:
    results, forward_faults = [], 0
    for fault in MODEL_FAULTS:
        enough = not fault.backward_only and forward_faults >= _FORWARD_FAULTS_HERE
        if enough or pair.dtype not in fault.dtypes:
            continue
        with planted(fault, pair.ours) as where:
            if where is None:
                continue
            forward_faults += not fault.backward_only
            results.append(judge(fault.name, pair.compare_gradients(pair.run_ours()), where))
    return results


def _array_controls(pair: CasePair, comparisons: list[Comparison]) -> list[ControlResult]:
    """A lost gradient, a gradient that should not be there, one scaled, one padded row trained."""
    passed = pair.ours_pass
    known = known_by_name(passed.gradients, comparisons)
    name = max(passed.gradients, key=lambda key: largest(passed.gradients[key]))
    scaled = {**passed.gradients, name: passed.gradients[name] * 1.001}
    lost = {key: value for key, value in passed.gradients.items() if key != name}
    extra = {**passed.gradients, "head.not_there": np.ones(3, pair.dtype)}
    faults = {"a gradient 0.1 % too large": scaled, "a lost gradient": lost, "an extra one": extra}
    rows = "bert.embeddings.word_embeddings.weight"
    if rows in passed.gradients:
        padded = passed.gradients[rows].copy()
        padded[0] = padded[1:].max(axis=0)
        faults["the [PAD] row trained"] = {**passed.gradients, rows: padded}
    return [
        judge(
            label,
            pair.compare_gradients(dataclasses.replace(passed, gradients=gradients), known),
            "the Paddle side's gradients",
        )
        for label, gradients in faults.items()
    ]
