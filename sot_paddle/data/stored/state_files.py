"""Write and read hidden states in HDF5, row by row, as far as a run has come.

Storage is allocated when a file is made, so that later only rows and one attribute change: a kill
at any moment leaves every row before ``last_index`` whole, and the next run goes on from there.

Shape legend: n rows, L hidden states, T tokens, F features, B rows of a batch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from sot_paddle.atomic import naming
from sot_paddle.data.errors import DataError
from sot_paddle.data.stored.file_layout import Dataset, StoredSplit
from sot_paddle.data.stored.row_sums import RowSums
from sot_paddle.reading import open_file, parse_json
from sot_paddle.strict_json import dumps

DTYPES = ("float32", "float16")
LAST, ORIGIN = "last_index", "made_from"
"""Attributes: rows written so far, and what the rows were made from."""

_MOST_PACKED = 1100  # what compression takes off at most, and a bit more

_SPARE = 1 << 20
"""Bytes that the structure of the files takes at most, beside the rows."""


@dataclass(frozen=True)
class StateSizes:
    """How much is stored.

    Attributes:
        rows: n.
        layers: L.
        tokens: T.
        features: F.
        dtype: of a hidden state, one of `DTYPES`.
        chunk: rows that are read and written together.
    """

    rows: int
    layers: int
    tokens: int
    features: int
    dtype: str = "float32"
    chunk: int = 1

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise DataError(f"dtype: expected one of {', '.join(DTYPES)}, got {self.dtype!r}")
        for name in ("rows", "layers", "tokens", "features", "chunk"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def of_row(self) -> tuple[int, int, int]:
        """(L, T, F)."""
        return self.layers, self.tokens, self.features

    def bytes_needed(self, split: StoredSplit) -> int:
        """Bytes on the disk: the rows of every dataset and some space for the files' structure."""
        chunks = -(-self.rows // self.chunk)
        state = int(np.prod(self.of_row)) * np.dtype(self.dtype).itemsize
        small = sum(np.dtype(one.dtype).itemsize for one in split.datasets if one.dtype)
        index = 128 * chunks * len(split.datasets)
        return chunks * self.chunk * (state + small) + index + _SPARE


def require_ours(paths: Iterable[Path]) -> None:
    """Refuse files that extraction would continue or replace although it did not begin them.

    Ours says what it was made from, or a kill left it empty or cut.

    Raises:
        DataError: naming the first other file.
    """
    for path in paths:
        if os.path.lexists(path) and not _is_ours(path):
            raise DataError(
                f"{path} holds no hidden states that this tool wrote: move it, or choose another "
                "folder"
            )


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    if not h5py.is_hdf5(path):
        return path.stat().st_size == 0
    try:
        with h5py.File(path, "r") as file:
            return all(ORIGIN in held.attrs for held in file.values())
    except OSError:
        return True  # a kill cut it


def require_space(folder: Path, split: StoredSplit, sizes: StateSizes) -> tuple[int, int]:
    """Refuse to begin what the disk cannot hold; what the files occupy already is not asked again.

    Args:
        folder: exists.
        split: the files.
        sizes: of the whole split.

    Returns:
        (bytes that are still needed, bytes that are free).

    Raises:
        DataError: there is less space.
    """
    occupied = sum(p.stat().st_blocks * 512 for p in split.paths(folder) if p.exists())
    needed = max(sizes.bytes_needed(split) - occupied, 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        half = " (--dtype float16 needs half of it)" if sizes.dtype == "float32" else ""
        raise DataError(
            f"{folder}: the hidden states of {sizes.rows:,} rows need {readable(needed)} more and "
            f"{readable(free)} are free{half}; without files: --states live"
        )
    return needed, free


def readable(count: int) -> str:
    """A number of bytes in decimal units, such as ``21.8 GB``."""
    amount, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if unit != "bytes" else f"{count} bytes"


class StateWriter:
    """The files of a split, written in the order of the rows; a context manager.

    Args:
        folder: exists.
        split: the files' names.
        sizes: of the whole split.
        origin: what the rows are made from, by name: a file that was begun from something else is
            not continued.

    Attributes:
        done: rows that are written.

    Raises:
        DataError: files that were begun with other sizes or another origin, or that are damaged.
    """

    def __init__(
        self, folder: Path, split: StoredSplit, sizes: StateSizes, origin: Mapping[str, str]
    ) -> None:
        self._split, self._sizes, self._origin = split, sizes, dict(origin)
        self._sets: list[h5py.Dataset] = []
        with contextlib.ExitStack() as opened:
            for dataset in split.datasets:
                found = self._open(Path(folder), dataset)
                opened.callback(found.file.close)
                _reserve(found.file)
                self._sets.append(found)
            self._opened = opened.pop_all()
        self.done = min(sizes.rows, *(int(one.attrs[LAST]) for one in self._sets))
        self._sums = [RowSums(one) for one in self._sets]
        for one in self._sums:
            one.go_on(self.done)

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _open(self, folder: Path, dataset: Dataset) -> h5py.Dataset:
        path = folder / dataset.file
        shape = (self._sizes.rows, *(() if dataset.dtype else self._sizes.of_row))
        dtype = dataset.dtype or self._sizes.dtype
        found = self._existing(path, dataset, shape, dtype)
        return self._create(path, dataset.name, shape, dtype) if found is None else found

    def _existing(
        self, path: Path, dataset: Dataset, shape: tuple[int, ...], dtype: str
    ) -> h5py.Dataset | None:
        """A dataset that an earlier run began; None when there is none or it had no row yet."""
        if not path.exists():
            return None
        file = _opened(path, "r+")
        found = file.get(dataset.name)
        if found is None or LAST not in found.attrs:  # killed while it was made
            file.close()
            return None
        begun = _origin(found)
        for name, stated, now in (
            ("shape", found.shape, shape),
            ("dtype", found.dtype.name, dtype),
            *((name, begun.get(name), value) for name, value in self._origin.items()),
        ):
            if stated != now:
                file.close()
                raise DataError(
                    f"{path} was begun with {name} {stated}, now {now}; give --overwrite to begin "
                    "anew, or another folder"
                )
        return found

    def _create(self, path: Path, name: str, shape: tuple[int, ...], dtype: str) -> h5py.Dataset:
        file = h5py.File(path, "w")
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        dataset = file.create_dataset(
            name,
            shape=shape,
            maxshape=(None, *shape[1:]),
            chunks=(self._sizes.chunk, *shape[1:]),
            dtype=dtype,
            dcpl=made,
        )
        dataset.attrs[ORIGIN] = dumps(self._origin)
        RowSums.begin(dataset)
        dataset.attrs[LAST] = 0
        file.flush()
        return dataset

    def append(self, states: np.ndarray, labels: Sequence[np.ndarray], rows: Sequence[int]) -> None:
        """Write the next B rows and mark them as written.

        Args:
            states: (B, L, T, F), any floating type.
            labels: for each dataset of labels (B,).
            rows: (B,) numbers of the examples.

        Raises:
            DataError: a hidden state that is not finite, or not in this dtype.
        """
        with np.errstate(over="ignore"):  # refused below
            stored = np.asarray(states).astype(self._sizes.dtype)
        if not np.isfinite(stored).all():
            largest = float(np.abs(np.asarray(states, dtype="float64")).max())
            raise DataError(
                f"row {self.done} or one of the {len(stored)} after it has hidden states up to "
                f"{largest:g}, which {self._sizes.dtype} cannot hold; give --dtype float32"
            )
        start, stop = self.done, self.done + len(stored)
        each = zip(self._sets, self._sums, (*labels, rows, stored), strict=True)
        for dataset, sums, values in each:
            dataset[start:stop] = values
            sums.add(start, np.asarray(values, dataset.dtype))
            sums.store()
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


def _reserve(file: h5py.File) -> None:
    """Have the disk keep room for all rows now: a later write that fails crashes HDF5 at the end.

    Raises:
        OSError: it is full.
    """
    path = Path(file.filename)
    with naming(path, path):
        os.posix_fallocate(file.id.get_vfd_handle(), 0, file.id.get_filesize())


class StateReader:
    """The files of a split whose rows are all there.

    Args:
        folder: where they are.
        split: their names.

    Attributes:
        labels: for each dataset of labels (n,).
        rows: (n,) numbers of the examples.
        origin: what the rows were made from, {} where the file does not say.
        checked: whether every file has checksums; those of older versions have none.

    Raises:
        DataError: a missing, damaged or unfinished file, or files that do not fit together.
    """

    def __init__(self, folder: str | Path, split: StoredSplit) -> None:
        self._path = Path(folder) / split.states.file
        opened = [self._read(Path(folder), dataset) for dataset in split.datasets]
        *small, self._states = opened
        lengths = {dataset.shape[0] for dataset in opened}
        if len(lengths) > 1:
            raise DataError(f"{folder}: the files of {split.states.file} have {lengths} rows")
        with _damage(self._path):
            sums = [RowSums(dataset) for dataset in opened]
            self.checked = all(one.known for one in sums)
            self._sums = sums[-1]
            for one in sums[:-1]:
                one.check_all()
            self.labels = tuple(dataset[:] for dataset in small[:-1])
            self.rows: np.ndarray = small[-1][:]
            self.origin = _origin(self._states)
        for dataset in small:
            dataset.file.close()

    @staticmethod
    def _read(folder: Path, dataset: Dataset) -> h5py.Dataset:
        path = folder / dataset.file
        if not path.is_file():
            raise DataError(
                f"{path} is not there: make it with tools/extract_hidden_states.py, or train "
                "without files: --states live"
            )
        file = _opened(path, "r")
        with _damage(path):
            return StateReader._checked(path, file, dataset)

    @staticmethod
    def _checked(path: Path, file: h5py.File, dataset: Dataset) -> h5py.Dataset:
        if dataset.name not in file:
            raise DataError(f"{path} holds no dataset {dataset.name!r}; it holds {[*file]}")
        found = file[dataset.name]
        axes = 1 if dataset.dtype else 4
        numbers = isinstance(found, h5py.Dataset) and found.dtype.kind in "fiu"
        if not numbers or found.ndim != axes:
            raise DataError(f"{path}: {dataset.name!r} is no array of numbers with {axes} axes")
        if found.nbytes > _MOST_PACKED * found.id.get_storage_size():
            raise DataError(f"{path}: {dataset.name!r} claims {found.nbytes:,} bytes, not stored")
        last = int(found.attrs.get(LAST, found.shape[0]))
        if last < found.shape[0]:
            raise DataError(
                f"{path} is unfinished: {last:,} of {found.shape[0]:,} rows; run the same "
                "tools/extract_hidden_states.py again"
            )
        return found

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
        """Hidden states (B, L, T, F) of rows, in the order asked for.

        Raises:
            DataError: they cannot be read, or are not what was written.
        """
        found = np.empty((len(positions), *self.of_row), self._states.dtype)
        with _damage(self._path):
            for place, position in enumerate(positions):
                self._sums.check(position)
                self._states.read_direct(found, np.s_[int(position)], np.s_[place])
        return found

    def close(self) -> None:
        """Close the file."""
        self._states.file.close()


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """What HDF5 says of a damaged file, as one line."""
    try:
        yield
    except DataError:
        raise
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error}): make it again") from error
    except (ArithmeticError, MemoryError) as error:
        raise DataError(f"{path} claims more than there can be ({error}): make it again") from error


def _origin(dataset: h5py.Dataset) -> dict[str, str]:
    """What the rows of a dataset were made from; {} where it does not say."""
    return parse_json(str(dataset.attrs.get(ORIGIN, "{}")), dataset.file.filename, strict=True)


def _opened(path: Path, mode: str) -> h5py.File:
    open_file(path).close()  # no pipe, no device
    try:
        return h5py.File(path, mode)
    except OSError as error:
        raise DataError(
            f"{path} cannot be opened ({error}); another process may be writing it, or it is "
            "damaged: give --overwrite to begin anew"
        ) from error
