"""The port's own models as a command: rows in worker processes or in this one, one report.

No framework is imported before a row runs. A worker is a fresh Python process with one thread for
each library, so that what it computes does not depend on how many workers there are.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fnmatch
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from align.port.head_rows import HEAD_ROWS
from align.port.image_rows import IMAGE_ROWS
from align.port.row import DTYPES, Choices, PortRow
from align.port.text_rows import TEXT_ROWS
from align.record.results import StepResult
from align.record.run_report import Report, origin
from align.report import reprod
from align.report.report_html import check_writable, write_asked
from align.report.report_text import console
from align.report.reprod import Checks, write_reprod
from sot_paddle.reading import read_text
from sot_paddle.runtime import ignore_import_warnings, tune_cpu

Compared = tuple[Report, Checks]
"""The report of a row or of all rows, and the arrays for the reprod_log files."""
ROWS: tuple[PortRow, ...] = (*TEXT_ROWS, *HEAD_ROWS, *IMAGE_ROWS)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**22)}
"""For glibc: an array of 4 MB or more goes back to the system when it is freed."""
_MOST_WORKERS = 2  # by default: a worker holds about 1 GB, with a full-size row up to 6


@dataclass(frozen=True)
class PortRun:
    """What is to be run."""

    rows: Sequence[PortRow]
    dtypes: Sequence[str]
    choices: Choices = Choices()

    def dtypes_of(self, row: PortRow) -> list[str]:
        """Return the precisions in which a row is run."""
        return [dtype for dtype in row.dtypes if dtype in self.dtypes]


def run_port(options: argparse.Namespace) -> int:
    """Run the command of this project's own models; return its exit status."""
    rows = select(ROWS, options.case or (), options.quick)
    if options.list:
        for row in rows:
            ends = "forward" if row.forward_only else "backward"
            kind = "training" if row.recipe else ends
            print(f"{row.name:42s} {kind:9s} {', '.join(row.dtypes)}")
        return 0
    check_writable([options.out], [options.json, options.junit])
    dtypes = DTYPES if options.dtype == "both" else (options.dtype,)
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    choices = Choices(checkpoint, _sentences(options.sentences))
    report, checks = run(PortRun(rows, dtypes, choices), options.jobs, _show)
    report.about = origin()
    print(console(report))
    if options.out:
        write_reprod(Path(options.out) / "reprod_log", checks)
    write_asked(report, options.out, options.json, options.junit)
    return report.exit_code


def _sentences(path: str | None) -> list[str]:
    if path is None:
        return []
    lines = read_text(path, encoding="utf-8-sig").splitlines()
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path} holds no sentence; expected one a line")
    return lines


def _show(row: str, results: Sequence[StepResult]) -> None:
    """Print a line for a row that is done: verdict, name, the steps that fail, seconds."""
    wrong = dict.fromkeys(result.step for result in results if not result.passed)
    mark = "FAIL" if wrong else "PASS"
    seconds = sum(result.seconds for result in results)
    text = f"{mark} {row:38s} {seconds:6.1f} s  {', '.join(wrong)}"
    print(text.rstrip(), file=sys.stderr, flush=True)


def select(rows: Sequence[PortRow], patterns: Sequence[str], quick: bool) -> list[PortRow]:
    """Return the rows that one of some patterns matches, all without any.

    Raises:
        ValueError: a pattern that no row matches, or only big ones that ``quick`` leaves out.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatch(row.name, pattern) for row in rows):
            raise ValueError(f"no case matches {pattern!r}; see python -m align --list")
    matching = [
        row
        for row in rows
        if not patterns or any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns)
    ]
    selected = [row for row in matching if row.quick or not quick]
    if not selected:
        raise ValueError(f"--quick leaves out every case that matches {', '.join(patterns)}")
    return selected


def run(
    asked: PortRun,
    workers: int | None = None,
    progress: Callable[[str, Sequence[StepResult]], None] = lambda row, results: None,
) -> Compared:
    """Compare every row.

    Args:
        workers: processes, 0 for this one alone, None for one for each processor, at most two.

    Returns:
        The report in the order of the rows, and the arrays for the reprod_log files.

    Raises:
        ValueError: a row is refused, there is nothing to run, or a worker ended early.
    """
    rows = [row for row in asked.rows if asked.dtypes_of(row)]
    if not rows:
        raise ValueError(f"none of these cases runs in {', '.join(asked.dtypes)}")
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    if workers < 0:
        raise ValueError(f"--jobs {workers}: expected a number of processes, 0 for this one alone")
    reports: dict[str, Compared] = {}
    here = ((row, _run(asked, row)) for row in rows)
    for row, row_report in _shared_out(asked, rows, workers) if workers else here:
        reports[row.name] = row_report
        progress(row.name, row_report[0].results)
    return _joined([reports[row.name] for row in rows], {"tuning": tune_cpu(), "workers": workers})


def _joined(reports: Sequence[Compared], how: dict[str, object]) -> Compared:
    report, checks = Report({**reports[-1][0].environment, **how}), {}
    for row_report, row_checks in reports:
        report.results += row_report.results
        report.findings += row_report.findings
        report.notes += row_report.notes
        for check, (torch_values, paddle_values) in row_checks.items():
            reprod.add(checks, check, "", torch_values, paddle_values)
    return report, checks


def _run(asked: PortRun, row: PortRow) -> Compared:
    from align.port.port_pair import run_row

    return run_row(row, asked.dtypes_of(row), asked.choices)


def _shared_out(
    asked: PortRun, rows: Sequence[PortRow], workers: int
) -> Iterator[tuple[PortRow, Compared]]:
    """Have rows run by worker processes, what takes long first; yield them as they are done."""
    tasks = sorted(rows, key=lambda row: (row.quick, row.recipe is None, row.subject != "images"))
    count = min(workers, len(tasks))
    context = multiprocessing.get_context("spawn")
    with _environment_of_workers(), contextlib.ExitStack() as stack:
        pool = concurrent.futures.ProcessPoolExecutor(count, context, _begin_worker)
        stack.callback(_end, pool)
        futures = {pool.submit(_run, asked, row): row for row in tasks}
        for future in concurrent.futures.as_completed(futures):
            row = futures[future]
            try:
                yield row, future.result()
            except BrokenProcessPool as error:
                raise ValueError(
                    f"a worker process was ended from outside, at {row.name} or beside it; when "
                    "memory was short, try --jobs 1"
                ) from error


def _end(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """However a run ends, no process outlives it."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in multiprocessing.active_children():
        process.kill()  # to SIGTERM Paddle answers with a trace of C++
        process.join()


def _environment_of_workers() -> contextlib.AbstractContextManager[object]:
    """One thread for each library and little memory; what the user has set stays as it is."""
    wanted = {name: value for name, value in _MALLOC.items() if name not in os.environ}
    if not tune_cpu().get(_THREADS[0], "").endswith("(set before)"):
        wanted |= dict.fromkeys(_THREADS, "1")
    return mock.patch.dict(os.environ, wanted)


def _begin_worker() -> None:
    """Import both frameworks, and never again look for garbage in what that made."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered by the process that began us
    ignore_import_warnings()
    gc.disable()
    from align.port import port_pair  # noqa: F401

    gc.collect()
    gc.freeze()
    gc.enable()
