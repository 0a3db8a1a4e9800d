"""Run the catalogue in worker processes: every fault planted, every scene clean on every seed.

A worker is a fresh interpreter with one thread that answers with plain data. One that dies or takes
too long is an error of its task and is replaced; an error never counts as a pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from align.certify.certificate import SEEDS, Certificate, CleanRun, FaultRow

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
LIMIT = 300.0  # seconds for one task
FAULT_SEED = 0
ROOT = Path(__file__).parents[2]

Progress = Callable[[int, int, "FaultRow | CleanRun"], None]


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
        progress: called after every task with the number done, the number of all, and the result.

    Returns:
        The certificate; `problems` says what it lacks.

    Raises:
        ValueError: a pattern that matches no fault, or a number below 1.
    """
    from align.certify import catalogue

    if seeds < 1 or jobs < 1:
        raise ValueError(f"seeds and jobs: expected at least 1, got {seeds} and {jobs}")
    faults = catalogue.select(only)
    scenes = dict.fromkeys(fault.scene for fault in faults)
    tasks = [{"fault": fault.name, "seed": FAULT_SEED} for fault in faults]
    for number, setting in enumerate(SETTINGS):
        turn = range(number, seeds, len(SETTINGS))
        tasks += [{"scene": s, "seed": seed, "setting": setting} for seed in turn for s in scenes]
    began = time.perf_counter()
    results = run_tasks(tasks, jobs, progress)
    rows = [one for one in results if isinstance(one, FaultRow)]
    clean = [one for one in results if isinstance(one, CleanRun)]
    return Certificate(rows, clean, time.perf_counter() - began, jobs)


def run_tasks(
    tasks: Sequence[dict[str, Any]], jobs: int, progress: Progress | None = None
) -> list[FaultRow | CleanRun]:
    """The result of every task, in their order.

    Args:
        tasks: {"fault", "seed"} or {"scene", "seed", "setting"}; a worker is replaced when the
            setting changes.
        jobs: worker processes.
        progress: see `certify`.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in range(len(tasks)):
        waiting.put(i)
    results: dict[int, FaultRow | CleanRun] = {}
    lock = threading.Lock()

    def serve() -> None:
        with contextlib.closing(Worker()) as worker:
            for i in _drained(waiting):
                result = worker.ask(tasks[i])
                with lock:
                    results[i] = result
                    if progress is not None:
                        progress(len(results), len(tasks), result)

    with ThreadPoolExecutor(jobs) as pool:
        served = [pool.submit(serve) for _ in range(min(jobs, len(tasks)))]
        try:
            for one in served:
                one.result()
        finally:  # after an interruption nothing new is begun
            for _ in _drained(waiting):
                continue
    return [results[i] for i in range(len(tasks))]


def _drained(waiting: queue.SimpleQueue[int]) -> Iterator[int]:
    """Numbers from a queue until it is empty."""
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


class Worker:
    """A worker process that is started when it is needed and replaced when it dies.

    Args:
        command: what to start, the worker's own module by default.
        limit: seconds that one task may take.
    """

    def __init__(self, command: Sequence[str] | None = None, limit: float = LIMIT) -> None:
        self.command = list(command or (sys.executable, "-m", "align.certify.certify_worker"))
        self.limit = limit
        self._process: subprocess.Popen | None = None
        self._setting = next(iter(SETTINGS))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)

    def ask(self, task: dict[str, Any]) -> FaultRow | CleanRun:
        """Send one task and wait for its result."""
        answer, why = self.reply(task)
        if why:
            return _failed(task, f"the worker {why}")
        kind = FaultRow if "fault" in task else CleanRun
        return kind(**json.loads(answer))

    def reply(self, task: dict[str, Any]) -> tuple[str, str]:
        """Send one task; its answer, or why there is none (the process is then gone)."""
        self._work_under(task.get("setting", next(iter(SETTINGS))))
        process = self._started()
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self.limit, give_up)
        timer.start()
        try:
            answer = self._exchange(process, task)
        finally:
            timer.cancel()
        if answer:
            return answer, ""
        why = f"took more than {self.limit:g} s" if late.is_set() else self._last_words()
        self._stop()
        return "", why

    def _exchange(self, process: subprocess.Popen, task: dict[str, Any]) -> str:
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        except OSError:
            return ""

    def _work_under(self, setting: str) -> None:
        """A library reads its setting once: another one needs another process."""
        if setting != self._setting:
            self._stop()
            self._setting = setting

    def _started(self) -> subprocess.Popen:
        if self._process is None:
            single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
            self._process = subprocess.Popen(  # noqa: S603 (this interpreter, our module)
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env={**os.environ, **single, **SETTINGS[self._setting], "PYTHONPATH": path},
            )
        return self._process

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return f"died with status {self._process.returncode}; its last words: {said[:300]}"

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None

    def close(self) -> None:
        """End the process."""
        self._stop()
        self._errors.close()


def _failed(task: dict[str, Any], why: str) -> FaultRow | CleanRun:
    """The result of a task that gave none."""
    if "scene" in task:
        return CleanRun(task["scene"], task["seed"], task.get("setting", ""), error=why)
    from align.certify import catalogue

    fault = catalogue.find(task["fault"])
    return FaultRow(fault.name, fault.area, fault.scene, fault.step, fault.place, error=why)
