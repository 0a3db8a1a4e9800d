"""Arrays that are read when they are asked for, and the temporary file that large ones wait in.

A recording of a full-size model weighs gigabytes, and a comparison looks at one tensor at a time.
So a run hands over mappings and lists that look like dicts and lists of arrays and read each array
on access: from memory, from a file, or from the live model.
"""

from __future__ import annotations

import functools
import os
import queue
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from align.record.arrays import Leaf

MEMORY = 64 * 2**20
"""Bytes that a store keeps in memory; what comes after them goes to the file."""

WORKERS = 2
QUICK = 2e-3
"""Seconds within which a task is not worth another thread."""
Result = TypeVar("Result")
_begun: set[Future] = set()
"""What some thread does, or is about to do."""

Reader = Callable[[], np.ndarray]


class Lazy(Mapping[str, np.ndarray]):
    """Arrays by name, each read on access.

    Args:
        readers: name -> function without arguments that returns the array.
    """

    def __init__(self, readers: Mapping[str, Reader] | None = None) -> None:
        self._readers = dict(readers or {})

    def __getitem__(self, name: str) -> np.ndarray:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def hold(self, name: str, reader: Reader) -> None:
        """Add an array, or replace it."""
        self._readers[name] = reader

    def leave(self, name: str) -> None:
        """Forget an array; a name that is not held is ignored."""
        self._readers.pop(name, None)


def by_kind(
    held: Mapping[str, Mapping[str, Any]], read: Callable[[Any], np.ndarray]
) -> dict[str, Lazy]:
    """Kind -> arrays by name, each read on access, of tensors by name and kind."""
    found: dict[str, Lazy] = {}
    for name, kinds in held.items():
        for kind, tensor in kinds.items():
            found.setdefault(kind, Lazy()).hold(name, functools.partial(read, tensor))
    return found


class LazyLeaves(Sequence[Leaf]):
    """(path, array) pairs in order, each array read on access; a slice is a plain list."""

    def __init__(self) -> None:
        self._held: list[tuple[str, Reader]] = []

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [(path, read()) for path, read in self._held[index]]
        path, read = self._held[index]
        return path, read()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, path: str, reader: Reader) -> None:
        """Add an array at the end."""
        self._held.append((path, reader))

    def paths(self) -> list[str]:
        """The paths, without reading an array."""
        return [path for path, _ in self._held]


def paths_of(leaves: Sequence[Leaf]) -> list[str]:
    """Paths of a list of leaves of either kind."""
    return leaves.paths() if isinstance(leaves, LazyLeaves) else [path for path, _ in leaves]


class _File:
    """Arrays one after the other in a temporary file without a name."""

    def __init__(self) -> None:
        self._file: Any = None
        self._end = 0

    def write(self, array: np.ndarray) -> tuple[int, np.dtype, tuple[int, ...]]:
        """Append an array; returns what `read` needs.

        Raises:
            ValueError: there is no room.
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the store)
        at = self._end
        try:
            self._file.seek(at)
            self._file.write(_bytes(np.ascontiguousarray(array)))
            self._file.flush()
        except OSError as error:
            raise ValueError(
                f"no room for {(at + array.nbytes) / 2**30:.1f} GiB of tensors in "
                f"{tempfile.gettempdir()} ({error.strerror}): point TMPDIR to a larger disk"
            ) from error
        self._end += array.nbytes
        return at, array.dtype, array.shape

    def read(self, at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """An array back, by its position: threads may read at once."""
        found = np.empty(shape, dtype)
        rest = memoryview(_bytes(found))
        while rest:
            size = os.preadv(self._file.fileno(), [rest], at)
            assert size, f"{len(rest)} of {found.nbytes} bytes are missing"
            rest, at = rest[size:], at + size
        return found

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            self._file.close()


class Store:
    """Keeps arrays: the first MEMORY bytes in memory, further ones in files without a name.

    The files lie in the folder for temporary files (TMPDIR) and are gone with the last reader.
    There is one for each thread of `ahead`: a file takes one writer at a time.

    Args:
        room: bytes that it keeps in memory, None for MEMORY.
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = MEMORY if room is None else room
        self._lock = threading.Lock()
        self._free: queue.SimpleQueue[_File] = queue.SimpleQueue()
        for file in [_File() for _ in range(WORKERS)]:
            weakref.finalize(self, file.close)
            self._free.put(file)

    def put(self, array: np.ndarray) -> Reader:
        """Take an array over, a view as a copy; the caller must not write into it any more.

        Returns:
            What reads it back.

        Raises:
            ValueError: there is no room for the file.
        """
        with self._lock:
            fits = array.nbytes <= self._room
            self._room -= array.nbytes if fits else 0
        if fits:
            own = array if array.flags.owndata else array.copy()
            return lambda: own
        file = self._free.get()
        try:
            place = file.write(array)
        finally:
            self._free.put(file)
        return functools.partial(self._read, file, *place)

    def keep(self, arrays: Mapping[str, np.ndarray]) -> Lazy:
        """Take over every array of a mapping, some at a time."""
        tasks = (lambda name=name: self.put(arrays[name]) for name in arrays)
        return Lazy(dict(zip(arrays, ahead(tasks), strict=True)))

    def _read(self, file: _File, at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        return file.read(at, dtype, shape)  # by way of the store, which lives as long


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array, of a dtype that NumPy itself does not know as well."""
    return array.reshape(-1).view(np.uint8)


def ahead(tasks: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    """Results of some functions in their order; after a slow one several wait or run at a time.

    Args:
        tasks: functions without arguments that do not depend on each other. One that nobody asks
            for is not begun, but for WORKERS of them.
    """
    rest = iter(tasks)
    for task in rest:
        began = time.perf_counter()
        result = task()
        slow = time.perf_counter() - began > QUICK
        yield result
        if slow:
            yield from _side_by_side(rest)


def _side_by_side(tasks: Iterator[Callable[[], Result]]) -> Iterator[Result]:
    held: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for task in tasks:
                held.append(pool.submit(task))
                _begun.add(held[-1])
                held[-1].add_done_callback(_begun.discard)
                if len(held) > WORKERS:
                    yield held.popleft().result()
            while held:
                yield held.popleft().result()
        finally:
            for future in held:
                future.cancel()


def settle() -> None:
    """Wait for what was begun and perhaps never asked for, before the arrays it reads go.

    Whoever stops at the first failed comparison may still hold the iterator of the others.
    """
    wait(tuple(_begun))
