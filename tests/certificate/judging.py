"""What a worker process of a certifying run does: plant, compare, judge what the suite says."""

from __future__ import annotations

import dataclasses
import re
import time
import traceback
from pathlib import Path
from typing import Any

import align
from align.commands.spec import USER_ERRORS
from sot_paddle.runtime import ignore_import_warnings
from tests.certificate.certificate import CleanRun, FaultRow
from tests.certificate.faults import Fault
from tests.certificate.scene import Scene

SUITE = Path(align.__file__).parent
CLEAN_DTYPES = ("float64", "float32")
LONGEST = 600  # characters of a message


def run_fault(fault: Fault, scene: Scene) -> FaultRow:
    """Compare a scene in which a fault is planted, and judge what the suite says."""
    row = FaultRow.expected(fault)
    began = time.perf_counter()
    try:
        row = _judged(row, fault, scene.compare())
    except USER_ERRORS as error:
        row = _refused(row, fault, error)
    return dataclasses.replace(row, seconds=time.perf_counter() - began)


def _judged(row: FaultRow, fault: Fault, outcome: Any) -> FaultRow:
    root = outcome.root
    if root is None:
        return dataclasses.replace(row, detected=not outcome.passed, reason=outcome.verdict)
    detected = not outcome.passed
    located = root.step == fault.step and fault.is_at(root.place)
    explained = bool(root.cause) and re.search(fault.cause, root.cause) is not None
    return dataclasses.replace(
        row,
        detected=detected,
        located=detected and located,
        explained=detected and explained,
        said_step=root.step,
        said_place=root.place,
        said_cause=root.cause,
        reason=root.reason,
    )


def _refused(row: FaultRow, fault: Fault, error: BaseException) -> FaultRow:
    """A ValueError of the suite itself is a finding; any other error makes the run worthless."""
    text = " ".join(str(error).split())[:LONGEST]
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    if not isinstance(error, ValueError) or SUITE not in last.parents:
        return dataclasses.replace(row, error=f"{type(error).__name__}: {text}")
    return dataclasses.replace(
        row,
        detected=True,
        located=fault.step in text and fault.is_named_in(text),
        explained=re.search(fault.cause, text) is not None,
        said_cause=text,
        reason="refused to compare",
    )


def run_clean(scene: Scene) -> CleanRun:
    """Compare a scene without a fault, in both precisions."""
    began = time.perf_counter()
    run = CleanRun(scene.name, scene.seed)
    try:
        outcome = dataclasses.replace(scene, dtype=CLEAN_DTYPES).compare()
        said = outcome.verdict if outcome.passed else _alarm(outcome)
        run = dataclasses.replace(run, passed=outcome.passed, said=said)
    except USER_ERRORS as error:
        text = " ".join(str(error).split())[:LONGEST]
        run = dataclasses.replace(run, error=f"{type(error).__name__}: {text}")
    return dataclasses.replace(run, seconds=time.perf_counter() - began)


def _alarm(outcome: Any) -> str:
    """The verdict of a failed clean run with what failed in it."""
    failed = [result for result in outcome.report.results if not result.passed]
    parts = [outcome.verdict]
    for result in failed[:2]:
        first = result.first_failure
        what = f"{first.name}: {first.reason}" if first else "; ".join(result.problems)
        parts.append(f"{result.step} ({result.dtype}): {what}")
    return "; ".join(parts)[:LONGEST]


def work(task: dict[str, Any]) -> FaultRow | CleanRun:
    """The result of a task {"fault", "seed"} or {"scene", "seed", "setting"}."""
    ignore_import_warnings()
    from tests.certificate import faults, scenes
    from tests.certificate.planting import plant

    if "fault" in task:
        fault = faults.find(task["fault"])
        return run_fault(fault, plant(fault, scenes.build(fault.scene, task["seed"])))
    run = run_clean(scenes.build(task["scene"], task["seed"]))
    return dataclasses.replace(run, setting=task["setting"])
