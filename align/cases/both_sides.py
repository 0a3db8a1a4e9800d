"""The values of both sides and the one way from them to the result of a step.

A case says what is computed (`align.cases.kinds.case_kinds.ValueCase`); its function computes it on
both sides and names the faults that have to show; everything else is done here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from align.cases.context import Context
from align.cases.kinds.case_kinds import Case, ModelCase
from align.cases.model_pair import ModelPair
from align.judge.bounds import TOLERANCES
from align.judge.comparator import Settle, compare_mappings
from align.record.results import Comparison, ControlResult, StepResult, Tolerance
from align.stages.stages import judged_control

_VALUES = "align.cases.values"


@dataclass(frozen=True)
class Setting:
    """For what a case's values are computed.

    Attributes:
        case: whose values they are.
        step: one of `align.record.results.STEPS`.
        dtype: precision, None where it does not matter.
        context: the user's choices, and what the steps of a run share.
        until_judged: is closed when the values are judged.
    """

    case: Case
    step: str
    dtype: str
    context: Context
    until_judged: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def pair(self) -> ModelPair:
        """Both models of a case that has some, with the same weights."""
        assert isinstance(self.case, ModelCase)
        return self.context.pair(self.case, self.dtype)

    def folder(self) -> Path:
        """An empty folder, removed when the values are judged."""
        return Path(self.until_judged.enter_context(tempfile.TemporaryDirectory()))


@dataclass(frozen=True)
class ValueFault:
    """A fault that is not simply other values of ours.

    Attributes:
        ours: values with the fault, or a function that makes them; None for the right ones.
        reference: the same for the other side, where a fault shows as well there.
        place: where it is planted, "" for the place of all faults.
    """

    ours: Any = None
    reference: Any = None
    place: str = ""


@dataclass(frozen=True)
class BothSides:
    """What both sides computed, how it is judged and what must be found.

    Attributes:
        ours: Paddle's arrays by name (or what ``compare`` takes).
        reference: PyTorch's, in the order of execution.
        faults: name -> ours with the fault, a function that makes it, or a `ValueFault`. What runs
            the product once more is a function: what it runs does not count as compared.
        place: where the faults are planted, in words.
        rule: one tolerance, or a function from the name; None for that of the step.
        oracle: the reference's float64 values, for a rule that asks for them.
        noise: what rounding does to each, for a rule that asks for it.
        zero_scale: see `align.judge.comparator.compare_arrays`.
        compare: judges (ours, reference) in place of `compare_mappings`.
        edits: name -> function that makes the reference with a fault: tried on a failure, and named
            where ours then passes.
        stamps: who computed each side, as `align.record.results.StepResult` has it.
        framework_free: no framework is compared: there are no stamps.
        note: one line for the reader.
        series: curves to plot.
        log: the classic reprod_log check that takes these arrays, "" for none.
    """

    ours: Any
    reference: Any
    faults: Mapping[str, Any]
    place: str = ""
    rule: Tolerance | Callable[[str], Tolerance] | None = None
    oracle: Mapping[str, Any] | None = None
    noise: Settle | None = None
    zero_scale: float | None = None
    compare: Callable[[Any, Any], Iterable[Comparison]] | None = None
    edits: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    stamps: Mapping[str, Any] = field(default_factory=dict)
    framework_free: bool = False
    note: str = ""
    series: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""


def stamps(ours: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Who computed each side, by the names of a result."""
    return {"ours": dict(ours), "reference": dict(reference)}


def run(case: Case, step: str, dtype: str, context: Context) -> StepResult:
    """Compute the values of a case on both sides and judge them."""
    module, _, name = case.values.partition(":")
    values = getattr(importlib.import_module(f"{_VALUES}.{module}"), name or step)
    setting = Setting(case, step, dtype, context)
    with setting.until_judged:
        return result(setting, values(setting, **case.given))


def result(setting: Setting, sides: BothSides) -> StepResult:
    """Judge what both sides computed, and what they compute with each fault."""
    case, step, dtype = setting.case, setting.step, setting.dtype

    def compare(ours: Any, reference: Any) -> Iterable[Comparison]:
        if sides.compare is not None:
            return sides.compare(ours, reference)
        rule = sides.rule or TOLERANCES[step, dtype]
        options = {"oracle": sides.oracle, "noise": sides.noise, "zero_scale": sides.zero_scale}
        return compare_mappings(ours, reference, rule, **options)

    if sides.log:
        prefix = case.name if dtype is None else f"{case.name}/{dtype}"
        setting.context.log_classic(sides.log, prefix, sides.reference, sides.ours)
    comparisons = list(compare(sides.ours, sides.reference))
    if sides.edits and not all(comparison.passed for comparison in comparisons):
        hint = same_with(
            name
            for name, edit in sides.edits.items()
            if all(c.passed for c in compare(sides.ours, edit()))
        )
        comparisons = [c if c.passed else dataclasses.replace(c, hint=hint) for c in comparisons]
    return StepResult(
        case.name,
        step,
        dtype,
        comparisons,
        [_control(name, fault, sides, compare) for name, fault in sides.faults.items()],
        note=sides.note,
        series=dict(sides.series),
        stamps=dict(sides.stamps),
        framework_free=sides.framework_free,
    )


def same_with(names: Iterable[str]) -> str:
    """Names the edits of the reference after which ours is the same; "" without any."""
    named = ", ".join(names)
    return f"the reference does the same with: {named}" if named else ""


def _control(name: str, fault: Any, sides: BothSides, compare: Callable) -> ControlResult:
    planted = fault if isinstance(fault, ValueFault) else ValueFault(fault)
    ours = sides.ours if planted.ours is None else planted.ours
    reference = sides.reference if planted.reference is None else planted.reference
    made = [side() if callable(side) else side for side in (ours, reference)]
    return judged_control(name, compare(*made), planted.place or sides.place)
