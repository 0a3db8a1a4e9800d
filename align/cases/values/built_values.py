"""Step ``built``: a model before any weight is loaded, Paddle's against the reference's.

Names, shapes and dtypes, what is trained and decayed, initial distributions as each side declares
them, constants of every module, tables and masks by value, and the counts that are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.sides import built_paddle, built_torch
from align.cases.sides.built_records import (
    Built,
    StatedDifference,
    collapse,
    compare_facts,
    compare_values,
    shifted,
)
from align.record.results import Comparison

Plant = Callable[[Built], str | None]


def model(
    setting: Setting,
    *,
    name: str,
    options: Mapping[str, Any],
    published: Mapping[str, int] | None = None,
    differences: Sequence[StatedDifference] = (),
    precision: str = "float32",
) -> BothSides:
    """A model as built: tensors, constants, tables, decay sets and initial distributions.

    Args:
        setting: of the case.
        name: in the registry of both sides.
        options: overrides on both sides; empty for the published sizes.
        published: counts that the specification states, see
            `align.cases.sides.built_records.COUNTS`.
        differences: deliberate ones.
        precision: default dtype while it is built.
    """
    ours = built_paddle.describe(name, options, precision)
    reference = built_torch.describe(name, options, precision)
    faults = {}
    for title, plant in FAULTS.items():
        faulty = ours.copied()
        where = plant(faulty)
        if where is not None:
            faults[title] = ValueFault(faulty, place=where)

    def compare(built: Built, expected: Built) -> Iterator[Comparison]:
        yield from compare_facts(built.options, expected.options)
        yield from compare_facts(built.modules, expected.modules)
        yield from compare_facts(built.tensors, expected.tensors, differences)
        yield from compare_values(built.values, expected.values)
        if published:
            counts = built.counts()
            found = {kind: counts[kind] for kind in published}
            yield from compare_facts({"(counts)": found}, {"(counts)": dict(published)})

    return BothSides(
        ours,
        reference,
        faults,
        compare=lambda *sides: collapse(compare(*sides)),
        stamps=stamps(ours.stamp, reference.stamp),
    )


def _tensor(built: Built, accept: Callable[[Mapping], bool]) -> str | None:
    return next((name for name, facts in built.tensors.items() if accept(facts)), None)


def _deviation_doubled(built: Built) -> str | None:
    name = _tensor(built, lambda facts: facts.get("start", ("",))[0] == "normal")
    if name is not None:
        _, mean, std = built.tensors[name]["start"][:3]
        built.tensors[name]["start"] = ("normal", mean, 2 * std)
    return name


def _another_family(built: Built) -> str | None:
    name = _tensor(built, lambda facts: facts.get("start", ("",))[0] == "normal")
    if name is not None:
        built.tensors[name]["start"] = ("uniform", *built.tensors[name]["start"][1:])
    return name


def _one_row_more(built: Built) -> str | None:
    name = _tensor(built, lambda facts: len(facts["shape"]) == 2)
    if name is not None:
        rows, columns = built.tensors[name]["shape"]
        built.tensors[name]["shape"] = (rows + 1, columns)
    return name


def _exclusion_lost(built: Built) -> str | None:
    name = _tensor(built, lambda facts: facts["trained"] and not facts["decayed (vision)"])
    if name is not None:
        built.tensors[name]["decayed (vision)"] = True
    return name


def _tensor_lost(built: Built) -> str | None:
    name = next(reversed(built.tensors))
    del built.tensors[name]
    return name


def _epsilon_larger(built: Built) -> str | None:
    name = next((n for n, facts in built.modules.items() if "epsilon" in facts), None)
    if name is not None:
        built.modules[name]["epsilon"] *= 1.01
    return name


def _table_shifted(built: Built) -> str | None:
    for name, value in built.values.items():
        moved = shifted(value)
        if (moved != value).any():
            built.values[name] = moved
            return name
    return None


FAULTS: Mapping[str, Plant] = {
    "an initial deviation doubled": _deviation_doubled,
    "uniform instead of normal": _another_family,
    "one row too many": _one_row_more,
    "a decay exclusion lost": _exclusion_lost,
    "a tensor lost": _tensor_lost,
    "an epsilon 1 % larger": _epsilon_larger,
    "a table shifted by one element": _table_shifted,
}
"""Faults in what the Paddle side says of itself; each returns where it is, None for nowhere."""
