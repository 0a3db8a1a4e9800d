"""The one pool of worker processes: tasks go out in batches, results come back as they are made.

A worker is a fresh Python process with one thread for each library, so that what it computes does
not depend on how many workers there are. One that dies or takes too long costs the task at hand and
is replaced. Only this program's own objects travel through the pipes.

A program that uses it has to guard its own start with ``if __name__ == "__main__":``, as with every
process that multiprocessing spawns.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

from sot_paddle.failures import Terminated
from sot_paddle.guard import terminated_as_interrupted
from sot_paddle.runtime import tune_cpu

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**22)}
"""For glibc: an array of 4 MB or more goes back to the system when it is freed."""
_PATIENCE_S = 10.0
_LONGEST = 300  # characters of a worker's last words
USER_ERRORS = (ValueError, OSError, ImportError)
"""What a task refuses with one line; anything else is a defect of ours and ends its process."""

Work = Callable[[Sequence[Any]], Iterable[Any]]
"""Takes the tasks of a batch and gives a result for each, in their order; can be pickled."""


@dataclass(frozen=True)
class TaskBatch:
    """Tasks that one worker does one after the other.

    Attributes:
        positions: of the tasks.
        environment: variables of the worker's process, beside ours. A library reads them when it is
            loaded: another environment is another process.
    """

    positions: Sequence[int]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why a task has no result.

    Attributes:
        why: what the task refused, or how its process ended.
        refused: the task said so itself; its process lives.
        signal: that ended the process, 0 for none.
    """

    why: str
    refused: bool = False
    signal: int = 0


def tuning() -> dict[str, str]:
    """`tune_cpu` as it is in a worker."""
    return tune_cpu() | ({} if _threads_chosen() else {_THREADS[0]: "1 (in each worker)"})


def outcomes(
    tasks: Sequence[Any],
    work: Work,
    batches: Iterable[TaskBatch],
    count: int,
    limit: float = math.inf,
    quiet: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Have tasks done by worker processes.

    Close the iterator when it is left early: `contextlib.closing` ends the workers.

    Args:
        tasks: of any kind that can be pickled.
        work: what a worker does with a batch.
        batches: each task is in one of them; the first ones are begun first. After a failure the
            rest of a batch is one of its own.
        count: processes; no more are started than there are batches.
        limit: seconds that one task may take.
        quiet: nothing that a worker prints is shown; a `Failure` holds its last line.

    Yields:
        (position of a task, its result or `Failure`), in no fixed order.
    """
    waiting = deque(batches)
    with contextlib.ExitStack() as stack:
        crew = [
            stack.enter_context(_Worker(work, limit, quiet))
            for _ in range(min(count, len(waiting)))
        ]
        while waiting or any(worker.owed for worker in crew):
            for worker in crew:
                if waiting and not worker.owed:
                    worker.begin(waiting.popleft(), tasks)
            for worker in _ready(crew):
                position, result = worker.receive()
                if isinstance(result, Failure) and worker.owed:
                    waiting.appendleft(TaskBatch(tuple(worker.owed), worker.environment))
                    worker.owed.clear()
                yield position, result
        for worker in crew:
            worker.dismiss()
        for worker in crew:
            worker.wait()


def _ready(crew: Sequence[_Worker]) -> list[_Worker]:
    """The workers that have sent something, ended or taken too long."""
    busy = [worker for worker in crew if worker.owed]
    left = min(worker.late_at for worker in busy) - time.monotonic()
    pipes = [worker.pipe for worker in busy]
    heard = set(connection.wait(pipes, None if left == math.inf else max(left, 0.0)))
    return [one for one in busy if one.pipe in heard or one.late_at <= time.monotonic()]


class _Worker:
    """A process that is started when it is needed, and what it has still to send of its batch."""

    def __init__(self, work: Work, limit: float, quiet: bool) -> None:
        self.work, self.limit = work, limit
        self.owed: deque[int] = deque()
        self.environment: Mapping[str, str] = {}
        self.late_at = math.inf
        self.pipe: connection.Connection | None = None
        self._process: BaseProcess | None = None
        self._log = tempfile.NamedTemporaryFile() if quiet else None  # noqa: SIM115 (__exit__)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        """However a run ends, no process outlives it."""
        self._end()
        if self._log:
            self._log.close()

    def begin(self, batch: TaskBatch, tasks: Sequence[Any]) -> None:
        """Send a batch, to a new process where this one is gone or has another environment."""
        if self._process and self.environment != batch.environment:
            self.dismiss()
            self.wait()
            self._end()
        if self._process is None:
            self.environment = batch.environment
            self._start()
        self.owed.extend(batch.positions)
        self.late_at = time.monotonic() + self.limit
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # receive() sees it too
            self.pipe.send([tasks[position] for position in batch.positions])

    def receive(self) -> tuple[int, Any]:
        """The next result, or why there is none; the process is then gone."""
        position = self.owed.popleft()
        self.late_at = time.monotonic() + self.limit
        try:
            if self.pipe.poll():
                return position, self.pipe.recv()
            failure = Failure(f"took more than {self.limit:g} s")
        except (EOFError, ConnectionResetError):
            failure = self._death()
        self._end()
        return position, failure

    def dismiss(self) -> None:
        """Tell the process that nothing more comes: it ends by itself."""
        if self._process:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.pipe.send(None)

    def wait(self) -> None:
        """Give the process time to end."""
        if self._process:
            self._process.join(_PATIENCE_S)

    def _start(self) -> None:
        spawn = get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        log = self._log.name if self._log else None
        with _of_workers(self.environment), _interrupts_ignored():
            self._process = spawn.Process(target=_serve, args=(theirs, self.work, log), daemon=True)
            self._process.start()
        theirs.close()

    def _death(self) -> Failure:
        self._process.join(_PATIENCE_S)
        code = self._process.exitcode or 0
        why = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        if self._log:
            lines = Path(self._log.name).read_text(errors="replace").split("\n")
            words = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
            why += f"; its last words: {words[:_LONGEST]}"
        return Failure(why, signal=max(-code, 0))

    def _end(self) -> None:
        if self._process:
            self._process.terminate()
            self.pipe.close()
            self._process.join(_PATIENCE_S)
            if self._process.is_alive():
                self._process.kill()
            self._process = None


def _threads_chosen() -> bool:
    return tune_cpu().get(_THREADS[0], "").endswith("(set before)")


def _of_workers(environment: Mapping[str, str]) -> contextlib.AbstractContextManager[Any]:
    """An environment in which a new process has one thread for each library and little memory.

    What the user chose, a number of threads or a setting of malloc, stays as it is.
    """
    wanted = {} if _threads_chosen() else dict.fromkeys(_THREADS, "1")
    wanted |= {name: value for name, value in _MALLOC.items() if name not in os.environ}
    return mock.patch.dict(os.environ, wanted | environment)


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


def _serve(pipe: connection.Connection, work: Work, log: str | None) -> None:
    """A worker's life: batch after batch, until None comes or the pipe breaks."""
    if log:
        with open(log, "w") as target:
            os.dup2(target.fileno(), 1)
            os.dup2(target.fileno(), 2)
    try:
        with terminated_as_interrupted():  # a trainer's process ends with ours
            _work_off(pipe, work)
    except Terminated:
        sys.exit(1)


def _work_off(pipe: connection.Connection, work: Work) -> None:
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (batch := pipe.recv()) is not None:
            try:
                for result in work(batch):
                    pipe.send(result)
            except USER_ERRORS as error:
                if isinstance(error, BrokenPipeError | ConnectionResetError):
                    raise
                pipe.send(Failure(str(error), refused=True))
