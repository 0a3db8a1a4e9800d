"""Batches made in worker processes, in order, with errors and dead workers told.

PADDLE: not by ``paddle.io.DataLoader`` (3.3.1). It forks its workers from the training process,
whose threads may hold a lock of Paddle's allocator at that moment; a worker that then puts a batch
into shared memory waits for that lock for ever (seen in one of three short test runs). And when a
worker raises or dies, the main process only gets "SystemError: Blocking queue is killed".

The workers here come from Python's fork server: they have no threads, never import Paddle, live as
long as their pool and end with the main process, also when that is killed. Large arrays come back
through shared memory where there is room for them, else through a pipe.

As always with such a pool, a script that uses workers must keep its own work under
``if __name__ == "__main__":``.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import shutil
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from sot_paddle.data.errors import DataError

PREFETCHED = 2
"""Batches under way for each worker."""
SHARED_FROM = 1 << 20
"""Bytes from which an array goes through shared memory."""
SHARED_FOLDER = "/dev/shm"  # noqa: S108  (only asked for its free space)

Batch = dict[str, np.ndarray]
Collate = Callable[[Sequence[Any]], Batch]


@dataclass(frozen=True)
class _Shared:
    """An array in shared memory that the receiver has to release."""

    name: str
    shape: tuple[int, ...]
    dtype: str


_task: tuple[Any, Collate] | None = None  # of a worker process: its data set and collate function
_making_memory = threading.Lock()  # between making a segment and telling Python's tracker of it


def _start(dataset: Any, collate: Collate) -> None:
    global _task
    _task = (dataset, collate)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's affair
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    connection.wait([multiprocessing.parent_process().sentinel])
    with _making_memory:
        os._exit(1)


def _make(keys: Sequence[Any]) -> dict[str, np.ndarray | _Shared]:
    dataset, collate = _task
    batch = collate([dataset[key] for key in keys])
    return {name: _share(array) for name, array in batch.items()}


def _share(array: np.ndarray) -> np.ndarray | _Shared:
    """Put a large array into shared memory, unless that is nearly full or does not exist."""
    if array.nbytes < SHARED_FROM or not os.path.isdir(SHARED_FOLDER):
        return array
    if shutil.disk_usage(SHARED_FOLDER).free < 4 * array.nbytes:  # 64 MB in a plain container
        return array
    with _making_memory:
        name = f"sot_{multiprocessing.parent_process().pid}_{secrets.token_hex(8)}"
        memory = SharedMemory(name, create=True, size=array.nbytes)
    np.ndarray(array.shape, array.dtype, buffer=memory.buf)[...] = array
    memory.close()
    return _Shared(memory.name, array.shape, array.dtype.str)


def _received(value: np.ndarray | _Shared, copy: Callable[[np.ndarray], Any]) -> Any:
    """A copy of an array; the shared memory is released."""
    if not isinstance(value, _Shared):
        return copy(value)
    memory = SharedMemory(value.name)
    try:
        return copy(np.ndarray(value.shape, value.dtype, buffer=memory.buf))
    finally:
        memory.close()
        memory.unlink()


def _release(future: Future) -> None:
    """Throw a batch away that nobody waits for any more."""
    if not future.cancelled() and future.exception() is None:
        for value in future.result().values():
            _received(value, lambda _: None)


class BatchWorkers:
    """A pool of processes that make batches of one data set.

    Args:
        dataset: indexed by keys; pickled once for each worker.
        collate: from a list of its items to a batch.
        count: number of processes, from 1; they start with the first batch.
    """

    def __init__(self, dataset: Any, collate: Collate, count: int) -> None:
        self._task, self._count = (dataset, collate), count
        self._pool: ProcessPoolExecutor | None = None

    def batches(
        self, keys: Iterable[Sequence[Any]], copy: Callable[[np.ndarray], Any] = np.array
    ) -> Iterator[dict[str, Any]]:
        """The batches of these lists of keys, in their order.

        Args:
            keys: read ahead by a few.
            copy: makes of an array what a batch is to hold; it must not keep the array itself.

        Raises:
            DataError: what a worker raised, or a worker ended.
        """
        pending: deque[Future] = deque()
        try:
            for some in keys:
                pending.append(self._submit(some))
                if len(pending) > self._count * PREFETCHED:
                    yield self._result(pending.popleft(), copy)
            while pending:
                yield self._result(pending.popleft(), copy)
        finally:
            for future in pending:
                if not future.cancel():
                    future.add_done_callback(_release)

    def close(self) -> None:
        """End the processes; a later pass starts new ones."""
        if self._pool is not None:
            self._finalizer()
            self._pool = None

    def _submit(self, keys: Sequence[Any]) -> Future:
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["sot_paddle.data.image_batches", __name__])
            self._pool = ProcessPoolExecutor(
                self._count, mp_context=context, initializer=_start, initargs=self._task
            )
            self._finalizer = weakref.finalize(
                self, self._pool.shutdown, wait=False, cancel_futures=True
            )
        try:
            return self._pool.submit(_make, keys)
        except BrokenProcessPool as error:
            raise self._broken() from error

    def _result(self, future: Future, copy: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        try:
            return {name: _received(value, copy) for name, value in future.result().items()}
        except BrokenProcessPool as error:
            raise self._broken() from error

    def _broken(self) -> DataError:
        self.close()
        return DataError(
            "a data worker ended unexpectedly (its own message, if any, is above; out of memory "
            "leaves none); use fewer workers or smaller batches"
        )
