"""Whole numbers in a file, read and written by position: lists that no memory has to hold."""

from __future__ import annotations

import os
import struct
import weakref
from pathlib import Path
from types import TracebackType

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.reading import open_file, shown

_WIDE = struct.Struct("<q")


class NumberFile:
    """Numbers of one type in a file, as an array of which nothing is held.

    Args:
        path: the file.
        dtype: of the numbers, little-endian: ``"<i8"`` or ``"<i4"``.

    Attributes:
        close: closes the file.

    Raises:
        DataError: it cannot be read, or its size is no multiple of a number's.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self._dtype = path, np.dtype(dtype)
        try:
            with open_file(path) as stream:
                self._descriptor = os.dup(stream.fileno())
        except ValueError as error:
            raise DataError(str(error)) from None
        self.close = weakref.finalize(self, os.close, self._descriptor)
        size = os.fstat(self._descriptor).st_size
        self._length, rest = divmod(size, self._dtype.itemsize)
        if rest:
            raise DataError(f"{shown(path)}: cut off, {size} bytes are no whole numbers")

    def __len__(self) -> int:
        """Numbers in the file."""
        return self._length

    def read(self, start: int, count: int) -> np.ndarray:
        """(count,) numbers from a position.

        Raises:
            DataError: the file has become shorter.
        """
        size = self._dtype.itemsize
        raw = os.pread(self._descriptor, count * size, start * size)
        if len(raw) != count * size:
            raise DataError(f"{shown(self.path)}: was cut off while it was read")
        return np.frombuffer(raw, self._dtype)

    def __getitem__(self, position: int) -> int:
        """One number."""
        if not 0 <= position < self._length:
            raise IndexError(position)
        return int(self.read(position, 1)[0])


class MutableNumbers:
    """A list of int64 in a file: what `random.Random.shuffle` needs, in no memory.

    Args:
        path: an existing file of int64.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._length = os.fstat(self._descriptor).st_size // _WIDE.size

    def __enter__(self) -> MutableNumbers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def __len__(self) -> int:
        """Numbers in the file."""
        return self._length

    def __getitem__(self, position: int) -> int:
        """One number."""
        raw = os.pread(self._descriptor, _WIDE.size, position * _WIDE.size)
        return _WIDE.unpack(raw)[0]

    def __setitem__(self, position: int, value: int) -> None:
        """Replace one number."""
        os.pwrite(self._descriptor, _WIDE.pack(value), position * _WIDE.size)
