"""Step ``built`` for defaults: what a user gets who says nothing, and the tables of the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import paddle
import torch

from align.cases.context import Context
from align.cases.kinds.case_kinds_built import DefaultsCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.built_records import Named, compare_facts
from align.record.results import ControlResult, StepResult


def run(case: DefaultsCase, dtype: None, context: Context) -> StepResult:
    """Compare one table; names that only Paddle has must be announced in ``case.own``."""
    from align.cases.sides.default_tables import TABLES  # loads paddlenlp: for this step alone

    read_ours, read_reference = TABLES[case.table]
    ours, reference = read_ours(), read_reference()
    gone = {name: {"default": "announced as Paddle's own"} for name in case.own if name not in ours}
    announced = {name: facts for name, facts in ours.items() if name not in case.own}
    reference |= gone
    stamps = {
        "ours": paddle_side.stamp(paddle.zeros([1])),
        "reference": torch_side.stamp(torch.zeros(1)),
    }
    return StepResult(
        case.name,
        "built",
        None,
        list(compare_facts(announced, reference, case.differences)),
        [*_controls(case, announced, reference)],
        stamps=stamps,
    )


def _controls(case: DefaultsCase, ours: Named, reference: Named) -> Iterator[ControlResult]:
    """Faults in what the Paddle side says."""
    name = next(name for name in ours if name in reference and ours[name])
    fact = next(iter(ours[name]))
    faults = {
        "one value changed": {**ours, name: {**ours[name], fact: _other(ours[name][fact])}},
        "one entry lost": {key: facts for key, facts in ours.items() if key != name},
        "one entry too many": {**ours, "an unannounced option": {"default": 1}},
        "nothing at all": {},
    }
    for label, faulty in faults.items():
        yield judge(label, compare_facts(faulty, reference, case.differences), f"{name}: {fact}")
    if case.differences:
        one = case.differences[0]
        healed = {**ours, one.name: {**ours.get(one.name, {}), one.fact: one.reference}}
        label = "a listed difference that is gone"
        yield judge(label, compare_facts(healed, reference, case.differences), one.name)


def _other(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.001 + 1e-12
    return (*value, "more") if isinstance(value, tuple) else f"{value}?"
