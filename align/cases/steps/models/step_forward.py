"""Step ``forward``: every tap of both sides, in execution order."""

from __future__ import annotations

from align.cases.case_pair import CasePair, known_by_name
from align.cases.context import Context
from align.cases.kinds.case_kinds import ModelCase
from align.cases.planted_controls import MODEL_FAULTS, array_faults, judge, planted
from align.judge.bounds import TOLERANCES
from align.judge.distance import CEILING
from align.record.arrays import Arrays
from align.record.results import Comparison, ControlResult, StepResult


def run(case: ModelCase, dtype: str, context: Context) -> StepResult:
    """Compare the taps of a model case; see :class:`align.record.results.StepResult`."""
    pair = context.pair(case, dtype)
    taps = pair.shared_taps(pair.ours_pass.taps)
    comparisons = list(pair.compare_taps(taps))
    context.log_classic(
        "forward_align",
        f"{case.name}/{dtype}",
        {"logits": pair.reference_pass.taps["logits"]},
        {"logits": pair.ours_pass.taps["logits"]},
    )
    return StepResult(
        case.name,
        "forward",
        dtype,
        comparisons,
        [*_model_controls(pair), *_array_controls(pair, taps, comparisons)],
        stamps={"ours": pair.ours_pass.stamp, "reference": pair.reference_pass.stamp},
    )


def _model_controls(pair: CasePair) -> list[ControlResult]:
    results = []
    for fault in MODEL_FAULTS:
        if fault.backward_only or pair.dtype not in fault.dtypes:
            continue
        with planted(fault, pair.ours) as where:
            if where is not None:
                taps = pair.shared_taps(pair.run_ours(backward=False).taps)
                results.append(judge(fault.name, pair.compare_taps(taps), where))
    return results


def _array_controls(
    pair: CasePair, taps: Arrays, comparisons: list[Comparison]
) -> list[ControlResult]:
    # in float32 a band may be wider than what a tensor was near enough to pass: beyond any band
    off = 2 * CEILING if pair.needs_oracle else 20 * TOLERANCES["forward", pair.dtype].value
    beyond = {c.name: off * c.scale for c in comparisons}
    known = known_by_name(taps, comparisons)
    return [
        judge(name, pair.compare_taps(arrays, known), "the Paddle side's taps")
        for name, arrays in array_faults(taps, beyond).items()
    ]
