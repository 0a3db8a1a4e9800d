"""Run the catalogue in worker processes: every fault planted, every scene clean on every seed.

A worker that dies or takes too long is an error of its task; an error never counts as a pass.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.certificate import faults
from tests.certificate.certificate import SEEDS, Certificate, CleanRun, FaultRow
from tests.certificate.judging import work
from tests.worker_processes import Failure, outcomes

Progress = Callable[[int, int, Any], None]
"""Called after each task with the number done, the number of all and the result."""
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


class KeptResults:
    """The results of a run in a file, one a line, from which the same run goes on.

    Args:
        path: its name holds a hash of the code, so that no result of other code is taken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, result: FaultRow | CleanRun) -> None:
        """Append a result."""
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(result)) + "\n")

    def results(self, tasks: Sequence[dict[str, Any]]) -> list[FaultRow | CleanRun | None]:
        """Return the kept result of each task, None where there is none."""
        held: dict[Any, FaultRow | CleanRun] = {}
        for line in self.path.read_text("utf-8").splitlines() if self.path.is_file() else ():
            values = json.loads(line)
            if "fault" in values:
                held[values["fault"]] = FaultRow(**values)
            else:
                held[values["scene"], values["seed"]] = CleanRun(**values)
        return [held.get(task.get("fault") or (task["scene"], task["seed"])) for task in tasks]


def certify(
    seeds: int = SEEDS,
    jobs: int = 2,
    only: Sequence[str] | None = None,
    progress: Progress | None = None,
    kept: KeptResults | None = None,
) -> Certificate:
    """Plant every fault and run every scene clean.

    Args:
        seeds: each scene is run without a fault on the seeds 0 to this number.
        jobs: worker processes, each with one thread.
        only: names or patterns of faults, None for all; then only their scenes are run.
        progress: called after every task; see `Progress`.
        kept: results of a run that was cut off, which are not made again.

    Returns:
        The certificate; `problems` says what it lacks.

    Raises:
        ValueError: a pattern that matches no fault, or a number below 1.
    """
    if seeds < 1 or jobs < 1:
        raise ValueError(f"seeds and jobs: expected at least 1, got {seeds} and {jobs}")
    chosen = faults.select(only)
    scenes = dict.fromkeys(fault.scene for fault in chosen)
    tasks: list[dict[str, Any]] = [{"fault": fault.name, "seed": FAULT_SEED} for fault in chosen]
    for number, setting in enumerate(SETTINGS):
        turn = range(number, seeds, len(SETTINGS))
        tasks += [{"scene": s, "seed": seed, "setting": setting} for seed in turn for s in scenes]
    began = time.perf_counter()
    results = kept.results(tasks) if kept else [None] * len(tasks)
    missing = [i for i, result in enumerate(results) if result is None]

    def keep(done: int, total: int, result: FaultRow | CleanRun) -> None:
        if kept and not result.error:
            kept.add(result)
        if progress:
            progress(done, total, result)

    fresh = run_tasks([tasks[i] for i in missing], jobs, keep)
    for i, result in zip(missing, fresh, strict=True):
        results[i] = result
    rows = [one for one in results if isinstance(one, FaultRow)]
    clean = [one for one in results if isinstance(one, CleanRun)]
    seconds = time.perf_counter() - began
    return Certificate(rows, clean, len(faults.FAULTS), seconds=seconds, jobs=jobs)


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
    answers: list[Any] = [None] * len(tasks)
    running = outcomes(tasks, environments, work, jobs, LIMIT)
    with contextlib.closing(running) as finished:
        for done, (i, outcome) in enumerate(finished, start=1):
            failed = isinstance(outcome, Failure)
            answers[i] = without_result(tasks[i], outcome.why) if failed else outcome
            if progress is not None:
                progress(done, len(tasks), answers[i])
    return answers


def without_result(task: dict[str, Any], why: str) -> FaultRow | CleanRun:
    """The result of a task whose worker gave none."""
    if "scene" in task:
        return CleanRun(
            task["scene"], task["seed"], task.get("setting", ""), error=f"the worker {why}"
        )
    return FaultRow.expected(faults.find(task["fault"]), error=f"the worker {why}")
