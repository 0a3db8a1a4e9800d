"""Write and read hidden states in HDF5, row by row, as far as a run has come.

A file is made with room for every row, and HDF5 checks each chunk when it is read (Fletcher-32): a
kill leaves every row before ``last_index`` whole, and the next run goes on from there.

Shape legend: n rows, L hidden states, T tokens, F features, B rows of a batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.stored.layout import Dataset, StoredSplit

LAST, ORIGIN = "last_index", "made_from"
"""Attributes: rows written so far, and what the rows were made from."""


@dataclass(frozen=True)
class StateSizes:
    """How much is stored."""

    rows: int  # n
    layers: int  # L
    tokens: int  # T
    features: int  # F
    dtype: str = "float32"  # of a hidden state, one of `DTYPES`
    chunk: int = 1  # rows that are read and written together

    @property
    def of_row(self) -> tuple[int, int, int]:
        """(L, T, F)."""
        return self.layers, self.tokens, self.features

    @property
    def gigabytes(self) -> float:
        """Of all hidden states."""
        return self.rows * np.prod(self.of_row) * np.dtype(self.dtype).itemsize / 1e9


def require_ours(paths: Iterable[Path]) -> None:
    """Refuse files that extraction would continue or replace although it did not begin them."""
    for path in filter(os.path.lexists, paths):
        try:
            with h5py.File(path, "r") as file:
                is_ours = all(ORIGIN in dataset.attrs for dataset in file.values())
        except OSError:
            is_ours = False
        if not is_ours:
            raise DataError(
                f"{path} holds no hidden states that this tool wrote: move it, or choose another "
                "folder"
            )


def require_space(folder: Path, split: StoredSplit, sizes: StateSizes) -> None:
    """Refuse to begin what the disk cannot hold; what lies there already is not asked again."""
    occupied = sum(path.stat().st_size for path in split.paths(folder) if path.exists()) / 1e9
    free = shutil.disk_usage(folder).free / 1e9
    if sizes.gigabytes - occupied > free:
        half = " (--dtype float16 needs half of it)" if sizes.dtype == "float32" else ""
        raise DataError(
            f"{folder}: the hidden states of {sizes.rows:,} rows need {sizes.gigabytes:.1f} GB and "
            f"{free:.1f} GB are free{half}; without files: --states live"
        )


class StateWriter:
    """The files of a split, written in the order of the rows; a context manager.

    Args:
        origin: what the rows are made from, by name: a file that was begun from something else is
            not continued.

    Raises:
        DataError: files that were begun with other sizes or another origin, or that are damaged.
    """

    def __init__(
        self, folder: Path, split: StoredSplit, sizes: StateSizes, origin: Mapping[str, str]
    ) -> None:
        self._sizes, self._origin, self.done = sizes, dict(origin), sizes.rows
        self._sets = [self._open(Path(folder) / each.file, each) for each in split.datasets]

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for dataset in self._sets:
            dataset.file.close()

    def _open(self, path: Path, dataset: Dataset) -> h5py.Dataset:
        """A dataset to go on with; its file stays open."""
        shape = (self._sizes.rows, *(() if dataset.dtype else self._sizes.of_row))
        dtype = dataset.dtype or self._sizes.dtype
        if not path.exists():
            self._create(path, dataset.name, shape, dtype)
        with _naming(path):
            stored = h5py.File(path, "r+")[dataset.name]
            begun = {"shape": stored.shape, "dtype": stored.dtype.name, **_origin(stored)}
            self.done = min(self.done, int(stored.attrs[LAST]))
        for name, value in {"shape": shape, "dtype": dtype, **self._origin}.items():
            if begun.get(name) != value:
                raise DataError(
                    f"{path} was begun with {name} {begun.get(name)}, now {value}; give "
                    "--overwrite to begin anew, or another folder"
                )
        return stored

    def _create(self, path: Path, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Write a file whose rows are all 0."""
        part = path.with_suffix(".part")
        allocation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        allocation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        with _naming(path), h5py.File(part, "w") as file:
            dataset = file.create_dataset(
                name,
                shape=shape,
                maxshape=(None, *shape[1:]),
                chunks=(self._sizes.chunk, *shape[1:]),
                dtype=dtype,
                fletcher32=True,
                dcpl=allocation,
            )
            dataset.attrs[ORIGIN] = json.dumps(self._origin)
            dataset.attrs[LAST] = 0
        os.replace(part, path)

    def append(self, states: np.ndarray, labels: Sequence[np.ndarray], rows: Sequence[int]) -> None:
        """Write the next B rows and mark them as written.

        Args:
            states: (B, L, T, F), any floating type; finite in the file's, else a DataError.
            labels: for each dataset of labels (B,).
            rows: (B,) numbers of the examples.
        """
        with np.errstate(over="ignore"):  # refused below
            stored = np.asarray(states).astype(self._sizes.dtype)
        if not np.isfinite(stored).all():
            largest = float(np.abs(np.asarray(states, dtype="float64")).max())
            raise DataError(
                f"row {self.done} or one of the {len(stored)} after it has hidden states up to "
                f"{largest:g}, which {self._sizes.dtype} cannot hold; give --dtype float32"
            )
        stop = self.done + len(stored)
        for dataset, values in zip(self._sets, (*labels, rows, stored), strict=True):
            dataset[self.done : stop] = values
        self._flush()  # the rows are there before they are counted
        chunk = self._sizes.chunk
        for dataset in self._sets:
            # QUIRK: the original counts whole chunks, also when the last one is not full
            dataset.attrs[LAST] = -(-stop // chunk) * chunk if stop == self._sizes.rows else stop
        self._flush()
        self.done = stop

    def _flush(self) -> None:
        for dataset in self._sets:
            dataset.file.flush()


class StateReader:
    """The files of a split whose rows are all there.

    Attributes:
        labels: for each dataset of labels (n,).
        rows: (n,) numbers of the examples.
        origin: what the rows were made from, {} where the file does not say.

    Raises:
        DataError: a missing, damaged or unfinished file, or files that do not fit together.
    """

    def __init__(self, folder: str | Path, split: StoredSplit) -> None:
        *self.labels, self.rows = (_values(folder, each) for each in (*split.labels, split.rows))
        self._path = Path(folder) / split.states.file
        with _naming(self._path):
            self._states = _finished(self._path, split.states)
            self.origin = _origin(self._states)
        lengths = {len(self._states), len(self.rows), *map(len, self.labels)}
        if len(lengths) > 1:
            raise DataError(f"{folder}: the files of {split.states.file} have {lengths} rows")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def of_row(self) -> tuple[int, int, int]:
        """(L, T, F)."""
        return tuple(self._states.shape[1:])

    @property
    def dtype(self) -> str:
        """Of a hidden state."""
        return self._states.dtype.name

    def states(self, positions: Sequence[int]) -> np.ndarray:
        """Hidden states (B, L, T, F) of rows, in the order asked for."""
        states = np.empty((len(positions), *self.of_row), self._states.dtype)
        with _naming(self._path):
            for place, position in enumerate(positions):
                self._states.read_direct(states, np.s_[int(position)], np.s_[place])
        return states

    def close(self) -> None:
        """Close the file."""
        self._states.file.close()


def _values(folder: str | Path, dataset: Dataset) -> np.ndarray:
    """Read all rows of a small dataset."""
    path = Path(folder) / dataset.file
    with _naming(path):
        return _finished(path, dataset)[:]


def _finished(path: Path, dataset: Dataset) -> h5py.Dataset:
    """Open a dataset of which every row is written; its file stays open as long as it is used."""
    if not path.is_file():
        raise DataError(
            f"{path} is not there: make it with tools/extract_hidden_states.py, or train "
            "without files: --states live"
        )
    stored = h5py.File(path, "r")[dataset.name]
    axes = 1 if dataset.dtype else 4
    if stored.ndim != axes or stored.dtype.kind not in "fiu":
        raise DataError(f"{path}: {dataset.name!r} is no array of numbers with {axes} axes")
    written = int(stored.attrs.get(LAST, len(stored)))
    if written < len(stored):
        raise DataError(
            f"{path} is unfinished: {written:,} of {len(stored):,} rows; run the same "
            "tools/extract_hidden_states.py again"
        )
    return stored


def _origin(dataset: h5py.Dataset) -> dict[str, str]:
    """What the rows of a dataset were made from; {} where it does not say."""
    return json.loads(dataset.attrs.get(ORIGIN, "{}"))


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the path before what HDF5 says of a file."""
    try:
        yield
    except DataError:
        raise
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be used ({error}): it is damaged, or another process is writing it; "
            "make it again"
        ) from error
