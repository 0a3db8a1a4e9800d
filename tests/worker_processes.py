"""Tasks done by fresh Python processes, each under an environment of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any
from unittest import mock

AT_ONCE = 100
"""Tasks of one pool: its processes hold what both frameworks do not give back."""


@dataclass(frozen=True)
class Failure:
    """Why a task has no result: what it raised, or that its process ended."""

    why: str


def outcomes(
    tasks: Sequence[Any],
    environments: Sequence[Mapping[str, str]],
    work: Callable[[Any], Any],
    count: int,
    limit: float,
) -> Iterator[tuple[int, Any]]:
    """Have tasks done by worker processes; close the iterator when it is left early.

    Args:
        tasks: of any kind that can be pickled.
        environments: of each task, variables beside ours. A library reads them when it is loaded.
        work: what a worker does with a task; can be pickled.
        count: processes at a time.
        limit: seconds that one task may take.

    Yields:
        (position of a task, its result or `Failure`), in no fixed order.
    """
    groups: dict[tuple, list[int]] = {}
    for position, environment in enumerate(environments):
        groups.setdefault(tuple(sorted(environment.items())), []).append(position)
    for environment, positions in groups.items():
        with mock.patch.dict(os.environ, dict(environment)):
            for at in range(0, len(positions), AT_ONCE):
                waiting = {i: tasks[i] for i in positions[at : at + AT_ONCE]}
                at_once = count
                while waiting:
                    for position, result in _pool(waiting, work, at_once, limit):
                        del waiting[position]
                        yield position, result
                    at_once = 1 if at_once > 1 else count  # one alone: who ends the process?


def _pool(
    tasks: Mapping[int, Any], work: Callable[[Any], Any], count: int, limit: float
) -> Iterator[tuple[int, Any]]:
    """Do tasks until a process ends early, which costs its task where it is the only one."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pool = concurrent.futures.ProcessPoolExecutor(min(count, len(tasks)), context, _begin)
        stack.callback(_end, pool)
        futures = {pool.submit(_within, limit, work, task): i for i, task in tasks.items()}
        broken = []
        for future in concurrent.futures.as_completed(futures):
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                broken.append(futures[future])
            elif error is not None:
                yield futures[future], Failure(f"ended with {type(error).__name__}: {error}")
            else:
                yield futures[future], future.result()
    if broken and count == 1:
        yield min(broken), Failure(f"died, or took more than {limit:g} s")


def _end(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """However a run ends, no process outlives it."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in multiprocessing.active_children():
        process.terminate()
        process.join()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered by the process that began us


def _within(limit: float, work: Callable[[Any], Any], task: Any) -> Any:
    """Do a task; the alarm ends a process that takes too long."""
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        return work(task)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
