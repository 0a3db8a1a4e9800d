"""One step of a real case, run afresh: what a test of a blind spot plants its change under."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable
from pathlib import Path

import pytest

from align.cases.context import Context
from align.cases.runner import run_job
from align.cases.tables.cases import CASES
from align.record.results import StepResult
from tests.align.blind_spots.source_change import change_source

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A change of the product and the case that sees it: for `make test-long`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.long)


BY_NAME = {case.name: case for case in CASES}


@pytest.fixture
def run_case() -> Callable[..., StepResult]:
    """Runs ``run_case(name, step, dtype=None, **changes)``.

    Changes replace fields of the case, or options of its values.
    """

    def run(name: str, step: str, dtype: str | None = None, **changes: object) -> StepResult:
        case = BY_NAME[name]
        given = {option: changes.pop(option) for option in [*changes] if not hasattr(case, option)}
        if given:
            case = dataclasses.replace(case, given={**case.given, **given})
        return run_job((dataclasses.replace(case, **changes), step, dtype), Context())

    return run


@pytest.fixture
def failed() -> Callable[[StepResult], list[str]]:
    """Names of the comparisons of a result that failed, in order: where a change was placed."""
    return lambda result: [c.name for c in result.comparisons if not c.passed]


@pytest.fixture(scope="session")
def passed() -> set[tuple]:
    """The jobs that were seen to pass without a change."""
    return set()


@pytest.fixture
def caught(run_case, failed, passed, monkeypatch) -> Callable[..., list[str]]:
    """Plants ``caught("case step dtype", owner, function, old, new, place, said="", **changes)``.

    The case must fail first at a comparison whose name fits the place; ``said`` is part of a reason
    or hint. It must pass before: of a case as it stands in the table ``python -m align --quick``
    says so in the same ``make test``, a changed one is run here. Owners in a tuple all get the
    change. Returns what failed.
    """

    def run(job, owner, function, old, new, place, said="", **changes) -> list[str]:
        name, step, *dtype = job.split()
        case = BY_NAME[name]
        in_quick = case.quick and step in case.steps and (dtype or [None])[0] in case.dtypes
        if (changes or not in_quick) and (job, str(changes)) not in passed:
            clean = run_case(*job.split(), **changes)
            assert clean.passed, (clean.problems, clean.failures)
            passed.add((job, str(changes)))
        for one in owner if isinstance(owner, tuple) else (owner,):
            change_source(monkeypatch, one, function, old, new)
        result = run_case(*job.split(), **changes)
        names = failed(result)
        assert names
        assert fnmatch.fnmatchcase(names[0], place), names
        reasons = " | ".join(f"{c.reason} {c.hint}" for c in result.comparisons if not c.passed)
        assert said.lower() in reasons.lower(), reasons
        return names

    return run


@pytest.fixture
def places(run_case, failed) -> Callable[[str], tuple[list[str], str]]:
    """Names of what failed in the step ``built`` of a case, and the reasons in one text."""

    def run(name: str) -> tuple[list[str], str]:
        result = run_case(name, "built")
        assert not result.passed
        reasons = " | ".join(c.reason for c in result.failures)
        return failed(result), reasons

    return run


@pytest.fixture
def change_default(monkeypatch) -> Callable[[type, str, object], None]:
    """Changes the default of an option of a frozen record, in its constructor and its fields."""

    def change(record: type, name: str, value: object) -> None:
        item = record.__dataclass_fields__[name]
        monkeypatch.setattr(item, "default", value)
        made = record.__init__
        if made.__kwdefaults__ and name in made.__kwdefaults__:
            monkeypatch.setitem(made.__kwdefaults__, name, value)
            return
        names = made.__code__.co_varnames[1 : made.__code__.co_argcount]
        values = list(made.__defaults__)
        values[names.index(name) - len(names)] = value
        monkeypatch.setattr(made, "__defaults__", tuple(values))

    return change
