"""Step ``built``: a model before any weight is loaded, Paddle's against the reference's.

Names, shapes and dtypes, what is trained and decayed, initial distributions as each side declares
them, constants of every module, tables and masks by value, and the counts that are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from align.cases.context import Context
from align.cases.kinds.case_kinds_built import BuiltCase
from align.cases.planted_controls import judge
from align.cases.sides import built_paddle, built_torch
from align.cases.sides.built_records import Built, collapse, compare_facts, compare_values, shifted
from align.record.results import Comparison, ControlResult, StepResult

Plant = Callable[[Built], str | None]


def run(case: BuiltCase, dtype: None, context: Context) -> StepResult:
    """Compare the two models of a case as built."""
    ours, reference = built_paddle.describe(case), built_torch.describe(case)
    return StepResult(
        case.name,
        "built",
        None,
        collapse(compare(case, ours, reference)),
        [*_controls(case, ours, reference)],
        stamps={"ours": dict(ours.stamp), "reference": dict(reference.stamp)},
    )


def compare(case: BuiltCase, ours: Built, reference: Built) -> Iterator[Comparison]:
    """Judge one record against the other, and the published counts."""
    yield from compare_facts(ours.options, reference.options)
    yield from compare_facts(ours.modules, reference.modules)
    yield from compare_facts(ours.tensors, reference.tensors, case.differences)
    yield from compare_values(ours.values, reference.values)
    if case.published:
        counts = ours.counts()
        found = {name: counts[name] for name in case.published}
        yield from compare_facts({"(counts)": found}, {"(counts)": dict(case.published)})


def _controls(case: BuiltCase, ours: Built, reference: Built) -> Iterator[ControlResult]:
    """Faults in what the Paddle side says of itself."""
    for name, plant in _FAULTS.items():
        faulty = ours.copied()
        where = plant(faulty)
        if where is not None:
            yield judge(name, compare(case, faulty, reference), where)


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


_FAULTS: Mapping[str, Plant] = {
    "an initial deviation doubled": _deviation_doubled,
    "uniform instead of normal": _another_family,
    "one row too many": _one_row_more,
    "a decay exclusion lost": _exclusion_lost,
    "a tensor lost": _tensor_lost,
    "an epsilon 1 % larger": _epsilon_larger,
    "a table shifted by one element": _table_shifted,
}
