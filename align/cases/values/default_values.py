"""Step ``built`` for defaults: what a user gets who says nothing, and the tables of the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.sides.built_records import Named, StatedDifference, compare_facts
from align.frameworks import on_paddle, on_torch


def table(
    setting: Setting,
    *,
    name: str,
    differences: Sequence[StatedDifference] = (),
    own: Sequence[str] = (),
) -> BothSides:
    """Default values of options, optimizers and functions, or a table of the original's.

    Args:
        setting: of the case.
        name: key of `align.cases.sides.default_tables.TABLES`.
        differences: deliberate ones.
        own: names that only the Paddle side has, announced here; they are not compared.
    """
    from align.cases.sides.default_tables import TABLES  # loads paddlenlp: for this step alone

    ours, reference = (read() for read in TABLES[name])
    gone = {one: {"default": "announced as Paddle's own"} for one in own if one not in ours}
    announced = {one: facts for one, facts in ours.items() if one not in own}
    return BothSides(
        announced,
        reference | gone,
        _faults(announced, reference, differences),
        compare=lambda *sides: list(compare_facts(*sides, differences)),
        stamps=stamps(on_paddle.stamp(paddle.zeros([1])), on_torch.stamp(torch.zeros(1))),
    )


def _faults(
    ours: Named, reference: Named, differences: Sequence[StatedDifference]
) -> dict[str, ValueFault]:
    """Faults in what the Paddle side says."""
    name = next(name for name in ours if name in reference and ours[name])
    fact = next(iter(ours[name]))
    changed = {**ours[name], fact: _other(ours[name][fact])}
    faults = {
        "one value changed": {**ours, name: changed},
        "one entry lost": {key: facts for key, facts in ours.items() if key != name},
        "one entry too many": {**ours, "an unannounced option": {"default": 1}},
        "nothing at all": {},
    }
    found = {label: ValueFault(faulty, place=f"{name}: {fact}") for label, faulty in faults.items()}
    for one in differences[:1]:
        healed = {**ours, one.name: {**ours.get(one.name, {}), one.fact: one.reference}}
        found["a listed difference that is gone"] = ValueFault(healed, place=one.name)
    return found


def _other(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.001 + 1e-12
    return (*value, "more") if isinstance(value, tuple) else f"{value}?"
