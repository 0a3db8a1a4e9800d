"""Hidden states of GLUE and SQuAD: made by a frozen encoder, or in HDF5 files, row by row.

A file has its name once every row is in it. HDF5 checks each chunk when it is read (Fletcher-32).

Shape legend: n rows, B rows of a batch, L hidden states, T tokens, F features.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import paddle
from paddle import nn
from tqdm import tqdm

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.stored.layout import Dataset, StoredSplit, original_features
from sot_paddle.data.subword import SubwordTokenizer

_REPORT_EVERY = 10.0  # seconds
LAST, ORIGIN = "last_index", "made_from"
"""Attributes: rows that are written, and what the rows were made from."""


Shape = tuple[int, int, int, int]
"""(n, L, T, F)."""


def require_space(folder: Path, shape: Shape, dtype: str) -> float:
    """Refuse to begin what the disk cannot hold; returns the gigabytes of the hidden states."""
    free, needed = shutil.disk_usage(folder).free / 1e9, math.prod(shape) / 1e9
    needed *= np.dtype(dtype).itemsize
    if needed > free:
        half = " (--dtype float16 needs half of it)" if dtype == "float32" else ""
        raise ValueError(
            f"{folder}: the hidden states of {shape[0]:,} rows need {needed:.1f} GB and "
            f"{free:.1f} GB are free{half}; without files: --states live"
        )
    return needed


def is_stored(folder: Path, split: StoredSplit, dtype: str, origin: Mapping[str, str]) -> bool:
    """Whether the files of a split are there, made from the same; a ValueError if from another."""
    present = [path for path in split.paths(folder) if os.path.lexists(path)]
    if not present:
        return False
    reader = StateReader(folder, split)
    if (reader.dtype, reader.origin) != (dtype, origin):
        raise ValueError(
            f"{present[-1]} holds {reader.dtype} of another model or other data: remove it, or "
            "choose another folder"
        )
    return True


class StateWriter:
    """The files of a split, written in the order of the rows; a context manager.

    They have their names when it ends without an error.

    Args:
        dtype: of a hidden state, one of `DTYPES`.
        origin: what the rows are made from, by name.
    """

    def __init__(
        self,
        folder: Path,
        split: StoredSplit,
        shape: Shape,
        dtype: str,
        origin: Mapping[str, str],
    ) -> None:
        self._shape, self._dtype, self._origin, self.done = shape, dtype, dict(origin), 0
        self._paths = split.paths(folder)
        self._sets = list(map(self._create, self._paths, split.datasets))

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        for dataset in self._sets:
            dataset.attrs[LAST] = self.done
            dataset.file.close()
        for path in self._paths if kind is None else ():
            os.replace(path.with_suffix(".part"), path)

    def _create(self, path: Path, dataset: Dataset) -> h5py.Dataset:
        """A dataset to fill; its file stays open."""
        shape = self._shape[:1] if dataset.dtype else self._shape
        stored = h5py.File(path.with_suffix(".part"), "w").create_dataset(
            dataset.name,
            shape=shape,
            maxshape=(None, *shape[1:]),
            chunks=(1, *shape[1:]),
            dtype=dataset.dtype or self._dtype,
            fletcher32=True,
        )
        stored.attrs[ORIGIN] = json.dumps(self._origin)
        return stored

    def append(self, states: np.ndarray, labels: Sequence[np.ndarray], rows: Sequence[int]) -> None:
        """Write the next B rows.

        Args:
            states: (B, L, T, F), any floating type; finite in the file's, else a ValueError.
            labels: for each dataset of labels (B,).
            rows: (B,) numbers of the examples.
        """
        with np.errstate(over="ignore"):  # refused below
            stored = np.asarray(states).astype(self._dtype)
        if not np.isfinite(stored).all():
            largest = float(np.abs(np.asarray(states, dtype="float64")).max())
            raise ValueError(
                f"row {self.done} or one of the {len(stored)} after it has hidden states up to "
                f"{largest:g}, which {self._dtype} cannot hold; give --dtype float32"
            )
        stop = self.done + len(stored)
        for dataset, values in zip(self._sets, (*labels, rows, stored), strict=True):
            dataset[self.done : stop] = values
        self.done = stop


class StateReader:
    """The files of a split whose rows are all there.

    Attributes:
        labels: for each dataset of labels (n,).
        rows: (n,) numbers of the examples.
        origin: what the rows were made from, {} where the file does not say.

    Raises:
        ValueError: a missing, damaged or unfinished file, or files that do not fit together.
    """

    def __init__(self, folder: str | Path, split: StoredSplit) -> None:
        *self.labels, self.rows = (_values(folder, each) for each in (*split.labels, split.rows))
        self._path = Path(folder) / split.states.file
        self._states = _finished(self._path, split.states)
        self.origin = json.loads(self._states.attrs.get(ORIGIN, "{}"))
        lengths = {len(self._states), len(self.rows), *map(len, self.labels)}
        if len(lengths) > 1:
            raise ValueError(f"{folder}: the files of {split.states.file} have {lengths} rows")

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
    stored = _finished(path, dataset)
    with _naming(path):
        return stored[:]


def _finished(path: Path, dataset: Dataset) -> h5py.Dataset:
    """Open a dataset of which every row is written; its file stays open as long as it is used."""
    if not path.is_file():
        raise ValueError(
            f"{path} is not there: make it with tools/extract_hidden_states.py, or train "
            "without files: --states live"
        )
    with _naming(path):
        stored = h5py.File(path, "r")[dataset.name]
        written = int(stored.attrs.get(LAST, len(stored)))
    if written < len(stored):
        raise ValueError(f"{path} is unfinished: {written:,} of {len(stored):,} rows; make it anew")
    return stored


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the path before what HDF5 says of a file."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} cannot be used ({error}): it is damaged, or another process is writing it; "
            "make it again"
        ) from error


def hidden_states(model: nn.Layer, inputs: Mapping[str, Any]) -> paddle.Tensor:
    """Every hidden state of a batch: the embedding output, then each layer's.

    The model runs in evaluation mode, without its head and without gradients; its mode is restored.
    Maps its arguments (B, T) by name to (B, L, T, F) in its precision. Source: C.2.
    """
    taps: dict[str, paddle.Tensor] = {}
    tensors = {name: paddle.to_tensor(value) for name, value in inputs.items()}
    mode = model.training
    model.eval()
    try:
        with paddle.no_grad():
            model.features(**tensors, taps=taps)
    finally:
        if mode:
            model.train()
    layers = [tap for name, tap in taps.items() if name.startswith("layers.")]
    return paddle.stack([taps["embeddings"], *layers], axis=1)


@dataclass(frozen=True)
class FrozenModel:
    """A language model whose hidden states are used, and its tokenizer, which says T."""

    model: nn.Layer  # its head is not used
    tokenizer: SubwordTokenizer

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of every weight of the encoder."""
        digest = hashlib.sha256()
        for name, weight in self.model.named_parameters():
            if not name.startswith("head."):
                digest.update(name.encode() + weight.numpy().tobytes())
        return digest.hexdigest()[:32]

    def states(self, tokens: TokenFeatures, task: str, split: str) -> LiveStates:
        """The hidden states of rows of at most T tokens."""
        origin = {"encoder": self.fingerprint, "rows": tokens.fingerprint}
        return LiveStates(self, tokens, origin | {"task": task, "split": split})


@dataclass(eq=False)
class LiveStates:
    """Hidden states of a frozen encoder, computed when they are asked for."""

    frozen: FrozenModel
    tokens: TokenFeatures  # n rows
    origin: Mapping[str, str]  # what the rows are made from

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def labels(self) -> tuple[np.ndarray, ...]:
        """For each kind of label (n,); () where there is none."""
        labels = self.tokens.labels
        return () if labels is None else tuple(np.atleast_2d(labels.T))

    @property
    def of_row(self) -> tuple[int, int, int]:
        """(L, T, F)."""
        sizes = self.frozen.model.encoder_config
        return sizes.num_hidden_layers + 1, self.frozen.tokenizer.max_length, sizes.hidden_size

    @property
    def dtype(self) -> str:
        """Of a hidden state."""
        parameter = next(iter(self.frozen.model.parameters()))
        return str(parameter.dtype).removeprefix("paddle.")

    def states(self, positions: Sequence[int]) -> np.ndarray:
        """Hidden states (B, L, T, F) of rows, in the order asked for."""
        tokenizer = self.frozen.tokenizer
        pad = {"max_length": tokenizer.max_length, "pad_id": tokenizer.pad_id}
        inputs = pad_rows(self.tokens, positions, **pad)
        inputs.pop("labels", None)
        return hidden_states(self.frozen.model, inputs).numpy()


StateSource = StateReader | LiveStates
"""Where hidden states come from: files, or an encoder."""


def extract(
    source: LiveStates, folder: Path, split: StoredSplit, dtype: str, *, batch_size: int = 8
) -> None:
    """Write the hidden states of a split, with a bar on stderr."""
    count = len(source)
    starts = range(0, count, batch_size)
    with StateWriter(folder, split, (count, *source.of_row), dtype, source.origin) as writer:
        for start in tqdm(starts, unit=" rows", unit_scale=batch_size, mininterval=_REPORT_EVERY):
            rows = range(start, min(start + batch_size, count))
            labels = [kind[rows.start : rows.stop] for kind in source.labels]
            writer.append(source.states(rows), labels, rows)


def glue_states(
    frozen: FrozenModel, folder: str | Path, task: str, split: str, rows: str = "original"
) -> tuple[LiveStates, np.ndarray]:
    """Hidden states of a GLUE split as BERTVision reads it, and the number of each row in its file.

    Split and rows are those of :func:`sot_paddle.data.stored.layout.original_features`.
    """
    tokens = original_features(folder, task, split, frozen.tokenizer, rows)
    return frozen.states(tokens, task, split), tokens.indices
