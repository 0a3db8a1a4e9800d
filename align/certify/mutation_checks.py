"""What a mutant has to get past: a quick case with all its steps, or a scene of the certificate."""

from __future__ import annotations

from pathlib import Path

from align.cases import runner
from align.cases.context import Context
from align.cases.covered.measure import PRODUCT
from align.cases.jobs import jobs
from align.cases.kinds.case_kinds import DTYPES
from align.cases.tables.cases import CASES
from align.certify import scenes
from align.certify.mutation_order import SCENE
from align.record.results import STEPS, StepResult

PORTS = Path(scenes.__file__).parents[1] / "ports"
_QUICK = {case.name: case for case in CASES if case.quick}


def names() -> list[str]:
    """Every check: the cases of the quick suite and the scenes."""
    return [*_QUICK, *(SCENE + name for name in scenes.SCENES)]


def mutable(name: str) -> Path:
    """The folder whose mutants a check judges."""
    return PORTS if name.startswith(SCENE) else PRODUCT


def failure(name: str, context: Context) -> str:
    """Run a check; what failed first in it, "" when it passes.

    Args:
        name: one of `names`.
        context: what the cases of a run share.
    """
    if name.startswith(SCENE):
        outcome = scenes.build(name.removeprefix(SCENE), 0).compare()
        return "" if outcome.passed else f"{outcome.verdict}"
    for job in jobs([_QUICK[name]], STEPS, DTYPES):
        result = runner.run_job(job, context)
        if not result.passed:
            return _said(result)
    return ""


def _said(result: StepResult) -> str:
    first = result.first_failure
    what = f"{first.name}: {first.reason}" if first else "; ".join(result.problems)
    return f"{result.step}{f', {result.dtype}' if result.dtype else ''}: {what}"
