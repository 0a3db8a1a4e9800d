"""Run the catalogue in worker processes: every fault planted, every scene clean on every seed.

A worker that dies or takes too long is an error of its task; an error never counts as a pass.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from align.certify import catalogue
from align.certify.certificate import SEEDS, Certificate, CleanRun, FaultRow
from align.certify.certify_worker import work
from align.certify.task_results import Progress, results

SETTINGS = {
    "as found": {},
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
"""Name -> environment of a worker: the libraries' own choice of kernels, and that of an older
processor. Clean runs take turns by their seed; faults are planted under the first."""
SINGLE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
LIMIT = 300.0  # seconds for one task
FAULT_SEED = 0


def certify(
    seeds: int = SEEDS,
    jobs: int = 2,
    only: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Plant every fault and run every scene clean.

    Args:
        seeds: each scene is run without a fault on the seeds 0 to this number.
        jobs: worker processes, each with one thread.
        only: names or patterns of faults, None for all; then only their scenes are run.
        progress: called after every task; see `task_results`.

    Returns:
        The certificate; `problems` says what it lacks.

    Raises:
        ValueError: a pattern that matches no fault, or a number below 1.
    """
    if seeds < 1 or jobs < 1:
        raise ValueError(f"seeds and jobs: expected at least 1, got {seeds} and {jobs}")
    faults = catalogue.select(only)
    scenes = dict.fromkeys(fault.scene for fault in faults)
    tasks: list[dict[str, Any]] = [{"fault": fault.name, "seed": FAULT_SEED} for fault in faults]
    for number, setting in enumerate(SETTINGS):
        turn = range(number, seeds, len(SETTINGS))
        tasks += [{"scene": s, "seed": seed, "setting": setting} for seed in turn for s in scenes]
    began = time.perf_counter()
    results = run_tasks(tasks, jobs, progress)
    rows = [one for one in results if isinstance(one, FaultRow)]
    clean = [one for one in results if isinstance(one, CleanRun)]
    seconds = time.perf_counter() - began
    return Certificate(rows, clean, len(catalogue.FAULTS), seconds=seconds, jobs=jobs)


def run_tasks(
    tasks: Sequence[dict[str, Any]], jobs: int, progress: Progress | None = None
) -> list[FaultRow | CleanRun]:
    """The result of every task, in their order.

    Args:
        tasks: {"fault", "seed"} or {"scene", "seed", "setting"}.
        jobs: worker processes.
        progress: see `certify`.
    """
    first = next(iter(SETTINGS))
    environments = [SINGLE | SETTINGS[task.get("setting", first)] for task in tasks]
    return results(tasks, work, jobs, without_result, progress, environments, LIMIT)


def without_result(task: dict[str, Any], why: str) -> FaultRow | CleanRun:
    """The result of a task whose worker gave none."""
    if "scene" in task:
        return CleanRun(task["scene"], task["seed"], task.get("setting", ""), error=why)
    return FaultRow.expected(catalogue.find(task["fault"]), error=why)
