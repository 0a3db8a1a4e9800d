"""Run jobs in worker processes: results come back as they are made, the report keeps its order.

A worker is a fresh Python process with one thread for each library, so that what it computes does
not depend on how many workers there are. Only this program's own objects travel through the pipes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from align.cases.covered.pause import unmeasured
from align.cases.jobs import Batch, Job, batches
from align.record.results import Report, StepResult
from sot_paddle.runtime import quiet_imports, tune_cpu

if TYPE_CHECKING:
    from align.cases.context import Context

MOST_BY_DEFAULT = 2  # a worker holds about 1 GB, with a full-size case up to 6
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**22)}
"""For glibc: an array of 4 MB or more goes back to the system when it is freed."""
_PATIENCE_S = 10.0
USER_ERRORS = (ValueError, OSError, ImportError)
"""What a run refuses with one line; anything else is a defect of ours."""


def default_workers() -> int:
    """One for each processor that this process may use, at most two.

    More are for the user to ask for, who knows the memory: the full-size cases need most of it.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(usable or 1, MOST_BY_DEFAULT))


@dataclass
class _Worker:
    """A process, our end of its pipe, and what it has still to send of its batch."""

    process: BaseProcess
    pipe: connection.Connection
    owed: deque[int] = field(default_factory=deque)
    idle: bool = True


def run(
    todo: Sequence[Job],
    context: Context,
    progress: Callable[[StepResult], None] = lambda result: None,
    workers: int = 1,
) -> Report:
    """Run jobs in worker processes.

    The program that calls this has to guard its own start with ``if __name__ == "__main__":``, as
    with every process that multiprocessing spawns.

    Args:
        todo: from `align.cases.jobs.jobs`.
        context: the user's choices; receives the arrays of the classic checks.
        progress: called with each result as it comes, in no fixed order.
        workers: processes, at least 1; no more are started than there are batches.

    Returns:
        The report, in the order of ``todo``.

    Raises:
        ValueError: what a job refused, or a worker process ended early.
    """
    waiting = deque(batches(todo))
    found: list[StepResult | None] = [None] * len(todo)
    classic: dict[int, Mapping[str, Any]] = {}
    stamp: dict[str, Any] = {}
    with _started(min(workers, len(waiting)), context) as crew:
        for worker in crew:
            _hand_out(worker, waiting, todo)
        while not all(worker.idle for worker in crew):
            for worker in _ready(crew):
                kind, content = _received(worker, todo)
                if kind == "refused":
                    raise ValueError(content)
                if kind == "result":
                    position, result, arrays = content
                    worker.owed.remove(position)
                    found[position], classic[position] = result, arrays
                    progress(result)
                elif kind == "done":
                    stamp, worker.idle = content, True
                    _hand_out(worker, waiting, todo)
        for worker in crew:
            worker.pipe.send(None)
    for position in sorted(classic):
        context.add_classic(classic[position])
    tuning = tune_cpu()
    if not _threads_chosen():
        tuning[_THREADS[0]] = "1 (in each worker)"
    stamp |= {"tuning": tuning, "workers": len(crew)}
    assert all(found), "every job has given a result"
    return Report(stamp, [result for result in found if result])


def _hand_out(worker: _Worker, waiting: deque[Batch], todo: Sequence[Job]) -> None:
    """Give a worker the next batch, when there is one."""
    if waiting:
        batch = waiting.popleft()
        worker.owed.extend(batch)
        worker.idle = False
        worker.pipe.send([(position, todo[position]) for position in batch])


def _ready(crew: Sequence[_Worker]) -> list[_Worker]:
    """The workers that have sent something, or ended."""
    heard = set(connection.wait([worker.pipe for worker in crew if not worker.idle]))
    return [worker for worker in crew if worker.pipe in heard]


def _received(worker: _Worker, todo: Sequence[Job]) -> tuple[str, Any]:
    """The next message of a worker; one clear line when it has died."""
    try:
        return worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join(_PATIENCE_S)
        code = worker.process.exitcode
        place = "between two cases"
        if worker.owed:
            case, step, dtype = todo[worker.owed[0]]
            place = f"at {case.name}, step {step}{f', {dtype}' if dtype else ''},"
        if code is not None and code < 0:
            how = f"was killed by signal {-code}; when memory was short, try --jobs 1"
        else:
            how = f"ended with status {code}; --jobs 0 runs it in this process"
        raise ValueError(f"a worker process, {place} {how}") from None


@contextlib.contextmanager
def _started(count: int, context: Context) -> Iterator[list[_Worker]]:
    """Start workers; however the block is left, none of them outlives it."""
    crew: list[_Worker] = []
    try:
        with _of_workers(), _interrupts_ignored():
            for _ in range(count):
                crew.append(_start(context))
        yield crew
        for worker in crew:
            worker.process.join(_PATIENCE_S)
    finally:
        for worker in crew:
            worker.process.terminate()
            worker.pipe.close()
        for worker in crew:
            worker.process.join(_PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()


def _start(context: Context) -> _Worker:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_work, args=(theirs, context.choices), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _threads_chosen() -> bool:
    return tune_cpu().get(_THREADS[0], "").endswith("(set by the user)")


@contextlib.contextmanager
def _of_workers() -> Iterator[None]:
    """An environment in which a new process has one thread for each library and little memory.

    What the user chose, a number of threads or a setting of malloc, stays as it is.
    """
    wanted = {} if _threads_chosen() else dict.fromkeys(_THREADS, "1")
    wanted |= {name: value for name, value in _MALLOC.items() if name not in os.environ}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal: only ours answers it, and ends the workers."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, where no interrupt arrives
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(pipe: connection.Connection, choices: Mapping[str, Any]) -> None:
    """A worker's life: batch after batch, until None comes or the pipe breaks."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a trainer's process ends with ours
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (batch := pipe.recv()) is not None:
            try:
                _do(pipe, batch, choices)
            except USER_ERRORS as error:
                if isinstance(error, BrokenPipeError | ConnectionResetError):
                    raise
                pipe.send(("refused", str(error)))


def _do(
    pipe: connection.Connection, batch: Sequence[tuple[int, Job]], choices: Mapping[str, Any]
) -> None:
    """Do a batch and send each result."""
    runner = _framework_runner()
    from align.cases.context import Context

    context = Context(**choices)
    for position, job in batch:
        result = runner.run_job(job, context)
        pipe.send(("result", (position, result, context.take_classic())))
    del context
    _tidy()
    pipe.send(("done", runner.environment_stamp()))


def _framework_runner():
    """`align.cases.runner`, and with it both frameworks, imported once."""
    if "align.cases.runner" not in sys.modules:
        quiet_imports()
        gc.disable()
        with unmeasured():
            import paddlenlp.transformers  # noqa: F401

            import sot_torch_ref  # noqa: F401
        import sot_paddle.registry  # noqa: F401
        from align.cases import runner  # noqa: F401

        _tidy()
        gc.enable()
    return sys.modules["align.cases.runner"]


def _tidy() -> None:
    """Free the models of a batch, and look no more at what is left.

    That is what imports made, a million objects that are never garbage: to go through them again
    and again would cost seconds.
    """
    gc.collect()
    gc.freeze()
