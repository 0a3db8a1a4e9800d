"""Whole numbers in a file, read and written by position: lists that no memory has to hold."""

from __future__ import annotations

import os
import random
import struct
import weakref
from pathlib import Path

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.reading import open_file, shown

_WIDE = struct.Struct("<q")


class NumberFile:
    """Numbers of one type in a file, as an array of which nothing is held.

    Args:
        path: the file.
        dtype: of the numbers, little-endian: ``"<i8"`` or ``"<i4"``.

    Raises:
        ValueError: it cannot be read, or its size is no multiple of a number's.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self._dtype = path, np.dtype(dtype)
        self._stream = open_file(path)
        weakref.finalize(self, self._stream.close)
        size = os.fstat(self._stream.fileno()).st_size
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
        raw = os.pread(self._stream.fileno(), count * size, start * size)
        if len(raw) != count * size:
            raise DataError(f"{shown(self.path)}: was cut off while it was read")
        return np.frombuffer(raw, self._dtype)

    def __getitem__(self, position: int) -> int:
        """One number."""
        if not 0 <= position < self._length:
            raise IndexError(position)
        return int(self.read(position, 1)[0])


def shuffle_file(path: Path, rng: random.Random) -> None:
    """Shuffle the int64 of a file as `random.Random.shuffle` shuffles a list, in no memory."""
    with open(path, "r+b", buffering=0) as stream:
        rng.shuffle(_MutableNumbers(stream.fileno()))


class _MutableNumbers:
    """The int64 of an open file as a list."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __len__(self) -> int:
        return os.fstat(self._descriptor).st_size // _WIDE.size

    def __getitem__(self, position: int) -> int:
        raw = os.pread(self._descriptor, _WIDE.size, position * _WIDE.size)
        return _WIDE.unpack(raw)[0]

    def __setitem__(self, position: int, value: int) -> None:
        os.pwrite(self._descriptor, _WIDE.pack(value), position * _WIDE.size)
