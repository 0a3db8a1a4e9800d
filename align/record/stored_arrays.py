"""Arrays that are read when they are asked for, and the temporary file that large ones wait in.

A recording of a full-size model weighs gigabytes, and a comparison looks at one tensor at a time.
So a run hands over mappings and lists that look like dicts and lists of arrays and read each array
on access: from memory, from a file, or from the live model.
"""

from __future__ import annotations

import functools
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from align.record.arrays import Leaf

MEMORY = 16 * 2**20
"""Bytes that a store keeps in memory; what comes after them goes to the file."""

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
    tensors: Mapping[str, Mapping[str, Any]], read: Callable[[Any], np.ndarray]
) -> dict[str, Lazy]:
    """Kind -> arrays by name, each read on access, of tensors by name and kind."""
    arrays: dict[str, Lazy] = {}
    for name, kinds in tensors.items():
        for kind, tensor in kinds.items():
            arrays.setdefault(kind, Lazy()).hold(name, functools.partial(read, tensor))
    return arrays


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


class Store:
    """Keeps arrays: the first MEMORY bytes in memory, further ones in a file without a name.

    The file lies in the folder for temporary files (TMPDIR) and is gone with the last reader.

    Args:
        room: bytes that it keeps in memory, None for MEMORY.
    """

    def __init__(self, room: int | None = None) -> None:
        self._room = MEMORY if room is None else room
        self._file: Any = None
        self._end = 0

    def put(self, array: np.ndarray) -> Reader:
        """Take an array over, a view as a copy; the caller must not write into it any more.

        Returns:
            What reads it back.

        Raises:
            ValueError: there is no room for the file.
        """
        if array.nbytes <= self._room:
            self._room -= array.nbytes
            kept = array if array.flags.owndata else array.copy()
            return lambda: kept
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the store)
            weakref.finalize(self, self._file.close)
        start = self._end
        try:
            self._file.seek(start)
            self._file.write(_bytes(np.ascontiguousarray(array)))
            self._file.flush()
        except OSError as error:
            raise ValueError(
                f"no room for {(start + array.nbytes) / 2**30:.1f} GiB of tensors in "
                f"{tempfile.gettempdir()} ({error.strerror}): point TMPDIR to a larger disk"
            ) from error
        self._end += array.nbytes
        return functools.partial(self._read, start, array.dtype, array.shape)

    def keep(self, arrays: Mapping[str, np.ndarray]) -> Lazy:
        """Take over every array of a mapping."""
        return Lazy({name: self.put(arrays[name]) for name in arrays})

    def _read(self, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        array = np.empty(shape, dtype)
        self._file.seek(start)
        self._file.readinto(memoryview(_bytes(array)))
        return array


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array, of a dtype that NumPy itself does not know as well."""
    return array.reshape(-1).view(np.uint8)
