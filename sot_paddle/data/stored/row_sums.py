"""Checksums of the rows of a dataset, in an attribute: CRC-32 of blocks of rows that follow.

A block is read and compared when the first of its rows is asked for, so that a large file costs no
pass of its own. Rows are added in their order; the block that a kill cut is summed up anew.
"""

from __future__ import annotations

import zlib

import h5py
import numpy as np

ATTRIBUTE = "crc32_of_rows"
_MOST = 1024
"""Blocks of a dataset: an attribute of HDF5 holds at most 64 KB."""


class RowSums:
    """The checksums of one dataset.

    Args:
        dataset: (n, ...); with no attribute of ours nothing is kept and nothing compared.

    Attributes:
        known: whether the dataset has checksums.
    """

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        table = dataset.attrs.get(ATTRIBUTE)
        self.known = table is not None
        rows = dataset.shape[0]
        if self.known and (table.dtype != np.uint32 or table.shape != (min(rows, _MOST),)):
            raise ValueError(f"the attribute {ATTRIBUTE} is no table of checksums")
        self._table = np.array(table) if self.known else np.zeros(0, np.uint32)
        self._per_block = -(-rows // max(len(self._table), 1))
        self._intact: set[int] = set()

    @classmethod
    def begin(cls, dataset: h5py.Dataset) -> RowSums:
        """Give a new dataset, of at least one row, its table."""
        dataset.attrs[ATTRIBUTE] = np.zeros(min(dataset.shape[0], _MOST), np.uint32)
        return cls(dataset)

    def go_on(self, done: int) -> None:
        """Sum up what is written of the block that the next row is in."""
        block = done // self._per_block
        if self.known and block < len(self._table):
            self._table[block:] = 0
            self._table[block] = self._sum(block * self._per_block, done)

    def add(self, start: int, values: np.ndarray) -> None:
        """Sum up rows that are written from `start` on."""
        for row, value in enumerate(np.ascontiguousarray(values), start) if self.known else ():
            block = row // self._per_block
            self._table[block] = zlib.crc32(value, int(self._table[block]))

    def store(self) -> None:
        """Write the table into the file."""
        if self.known:
            self._dataset.attrs.modify(ATTRIBUTE, self._table)

    def check(self, row: int) -> None:
        """Compare the block of a row, once.

        Raises:
            ValueError: it is not what was written.
        """
        block = int(row) // self._per_block
        if not self.known or block in self._intact:
            return
        start = block * self._per_block
        stop = min(start + self._per_block, self._dataset.shape[0])
        if self._sum(start, stop) != self._table[block]:
            raise ValueError(f"rows {start} to {stop - 1} have another checksum than was written")
        self._intact.add(block)

    def check_all(self) -> None:
        """Compare every block; see `check`."""
        for row in range(0, self._dataset.shape[0], self._per_block):
            self.check(row)

    def _sum(self, start: int, stop: int) -> int:
        found, step = 0, self._dataset.chunks[0] if self._dataset.chunks else 1
        if self._dataset.ndim == 1:
            step = max(stop - start, 1)
        for at in range(start, stop, step):
            found = zlib.crc32(
                np.ascontiguousarray(self._dataset[at : min(at + step, stop)]), found
            )
        return found
