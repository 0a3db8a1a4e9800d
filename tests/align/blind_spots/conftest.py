"""One step of a real case, run afresh: what a test of a blind spot plants its change under."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from align.cases import CASES
from align.context import Context
from align.results import StepResult
from align.runner import run_job


@pytest.fixture
def run_case() -> Callable[..., StepResult]:
    """Runs ``run_case(name, step, dtype=None, **changes)``; changes replace fields of the case."""
    by_name = {case.name: case for case in CASES}

    def run(name: str, step: str, dtype: str | None = None, **changes: object) -> StepResult:
        return run_job((dataclasses.replace(by_name[name], **changes), step, dtype), Context())

    return run


@pytest.fixture
def failed() -> Callable[[StepResult], list[str]]:
    """Names of the comparisons of a result that failed, in order: where a change was placed."""
    return lambda result: [c.name for c in result.comparisons if not c.passed]
