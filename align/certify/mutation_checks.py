"""What a mutant has to get past: a quick case with all its steps, or a scene of the certificate.

Imported in the process that runs them, from the copy of the tree that holds the mutant.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from align.cases import runner
from align.cases.context import Context
from align.cases.covered.measure import PRODUCT, executed
from align.cases.jobs import jobs
from align.cases.kinds.case_kinds import DTYPES
from align.cases.tables.cases import CASES
from align.certify import scenes
from align.certify.mutation_order import SCENE
from align.record.results import STEPS, StepResult

OURS = ("sot_paddle", "align")
"""The packages that a mutant's process imports afresh."""
PORTS = Path(scenes.__file__).parents[1] / "ports"
CASES_FOLDER = Path(runner.__file__).parent
PATIENCE_S, SLOWER = 20.0, 8.0  # a check may take its recorded time so often, and so much more
SAID = 300  # characters of a message
_CASES = {case.name: case for case in CASES}


def failure(name: str, context: Context) -> str:
    """Run a check; what failed first in it, "" when it passes.

    Args:
        name: one of `mutation_order.checks`.
        context: what the cases of a run share.
    """
    if name.startswith(SCENE):
        outcome = scenes.build(name.removeprefix(SCENE), 0).compare()
        return "" if outcome.passed else f"{outcome.verdict}"
    for job in jobs([_CASES[name]], STEPS, DTYPES):
        result = runner.run_job(job, context)
        if not result.passed:
            return _said(result)
    return ""


def _said(result: StepResult) -> str:
    first = result.first_failure
    what = f"{first.name}: {first.reason}" if first else "; ".join(result.problems)
    return f"{result.step}{f', {result.dtype}' if result.dtype else ''}: {what}"


def run(checks: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Run checks until the first failure.

    Args:
        checks: names, each with the seconds that it takes without an edit.
    """
    context = Context()
    for ran, (name, seconds) in enumerate(checks, start=1):
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S + SLOWER * seconds)
        said = failure(name, context)
        if said:
            return {"end": "detected", "check": name, "said": said[:SAID], "ran": ran}
    return {"end": "survived", "ran": len(checks)}


def record(name: str) -> dict[str, Any]:
    """Run one check without an edit; the lines that it runs of the mutable files and the cases'.

    Args:
        name: of a check, "" for what the import of the project runs.
    """
    said = ""
    with executed(*((PORTS,) if name.startswith(SCENE) else (PRODUCT, CASES_FOLDER))) as lines:
        began = time.perf_counter()
        if name:
            said = failure(name, Context())
        else:
            import_afresh()
        seconds = time.perf_counter() - began
    if said:
        raise ValueError(f"{name} fails without an edit: {said}")
    return {"end": "recorded", "check": name, "taken": seconds, "lines": lines}


def import_afresh() -> Any:
    """This module, with the whole project, as if nothing of it had been imported."""
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
    return importlib.import_module(__name__)
