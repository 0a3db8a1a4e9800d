"""The files of a dump: tensors in safetensors, the rest in strict JSON, one manifest of hashes.

The manifest is written last, inside a temporary folder that takes its name when it is complete.
Reading refuses everything else in one line; a tensor is read when it is looked at. The pass lies in
`forward.safetensors` (taps) and `backward.safetensors` (the loss and every gradient), a training in
`training.safetensors` (curves, final tensors, moments); `record.json` says which tensor is what, in
the order of execution. Equal arrays are stored once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from align.record.arrays import TrainingRun
from align.record.recording import Call, Recording
from align.record.stored_arrays import Lazy, LazyLeaves, Reader
from sot_paddle import checkpoint, reading, strict_json
from sot_paddle.atomic import atomic_directory
from sot_paddle.checkpoint import TensorSpec
from sot_paddle.reading import field_of

FORMAT, VERSION = "align dump", 4
MANIFEST = "manifest.json"


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and the bytes in C order."""
    array = np.asarray(array)
    hasher = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    hasher.update(_bytes(array))
    return hasher.hexdigest()


class TensorWriter:
    """Writes one safetensors file array by array: no more than one is in memory.

    Args:
        path: of the file, which is complete when the ``with`` block ends.
        once: an array that is there already, under another name, is not stored again.
    """

    def __init__(self, path: Path, once: bool = False) -> None:
        self._path, self._once = path, once
        self._specs: dict[str, TensorSpec] = {}
        self._starts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._stored: dict[str, str] = {}
        self._end = 0

    def __enter__(self) -> TensorWriter:
        self._data = tempfile.TemporaryFile(dir=self._path.parent)  # noqa: SIM115 (see __exit__)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        with self._data:
            if kind is None:
                self._finish()

    def add(self, name: str, array: np.ndarray) -> str:
        """Store an array.

        Args:
            name: under which it is to be found.
            array: numbers of a type that safetensors knows.

        Returns:
            The name under which it lies: the given one, or that of an equal array.

        Raises:
            ValueError: a type that cannot be stored, or another array has this name.
        """
        array = np.asarray(array)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name}: a dump cannot hold dtype {array.dtype}")
        key = digest(array) if self._once else name
        stored_name = self._names.setdefault(key, name)
        if self._once and (stored_name != name or self._stored.get(name) == key):
            return stored_name
        if name in self._specs:
            raise ValueError(f"two different tensors of this run are called {name!r}")
        self._data.write(_bytes(array))
        self._specs[name] = TensorSpec(array.shape, array.dtype)
        self._starts[name], self._stored[name] = self._end, key
        self._end += array.nbytes
        return name

    def _finish(self) -> None:
        self._data.flush()
        raw = np.memmap(self._data, np.uint8, "r") if self._end else np.empty(0, np.uint8)

        def load(name: str) -> np.ndarray:
            spec, start = self._specs[name], self._starts[name]
            return raw[start : start + spec.nbytes].view(spec.dtype).reshape(spec.shape)

        checkpoint.write_tensors(self._path, checkpoint.Tensors(self._specs, load))


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under their own names."""
    with TensorWriter(path) as writer:
        for name, array in arrays.items():
            writer.add(name, array)


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (NaN and infinities as text)."""
    path.write_text(strict_json.dumps(value), encoding="utf-8")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path``, manifest included, when the block succeeds.

    Args:
        path: must not exist yet, or be an empty folder.

    Raises:
        ValueError: it exists, or cannot be made.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path}: exists already; a dump is never replaced, choose another --out")
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(atomic_directory(path))
        except OSError as error:
            raise ValueError(f"cannot write to {path}: {error.strerror}") from error
        yield temporary
        _write_manifest(temporary)


def _write_manifest(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {
        path.relative_to(folder).as_posix(): {
            "sha256": reading.sha256_of(path),
            "bytes": path.stat().st_size,
        }
        for path in files
    }
    write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, "files": entries})


class Folder:
    """A complete dump on disk; opening it checks every file against the manifest.

    Args:
        path: the folder.

    Raises:
        ValueError: not a dump, another version, a file that is missing or was changed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ValueError(f"{path}: no such folder; expected one that `align dump` wrote")
        if not (self.path / MANIFEST).is_file():
            raise ValueError(f"{path}: has no {MANIFEST}: not a dump, or one that was not finished")
        manifest = reading.read_json(self.path / MANIFEST, strict=True)
        if manifest.get("format") != FORMAT:
            raise ValueError(f"{path}: {MANIFEST} is not that of an {FORMAT}")
        if manifest.get("version") != VERSION:
            raise ValueError(
                f"{path}: format version {manifest.get('version')!r}; this program reads "
                f"{VERSION}: dump it again with this version of the project"
            )
        files = manifest.get("files")
        if not isinstance(files, dict) or not files:
            raise ValueError(f"{path}: {MANIFEST} lists no files")
        self.files: Mapping[str, Any] = files
        for name, row in files.items():
            self._check(name, row)

    def _check(self, name: str, row: Any) -> None:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or not isinstance(row, dict):
            raise ValueError(f"{self.path}: {MANIFEST} has a bad row {name!r}")
        file = self.path / name
        if file.is_symlink() or not file.is_file():
            raise ValueError(f"{file}: missing, though {MANIFEST} lists it")
        size = file.stat().st_size
        if size != row.get("bytes"):
            raise ValueError(
                f"{file}: {size} bytes, {row.get('bytes')} were written: truncated or changed"
            )
        if reading.sha256_of(file) != row.get("sha256"):
            raise ValueError(f"{file}: its SHA-256 is not the one of the manifest: it was changed")

    def _listed(self, name: str) -> Path:
        if name not in self.files:
            raise ValueError(f"{self.path}: has no {name}")
        return self.path / name

    def has(self, name: str) -> bool:
        """Whether the dump holds a file."""
        return name in self.files

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file, which holds an object."""
        return reading.read_json(self._listed(name), strict=True)

    def tensors(self, name: str) -> checkpoint.Tensors:
        """Every tensor of a safetensors file, each read on access."""
        return checkpoint.read_tensors(self._listed(name))[0]


RECORD, FORWARD, BACKWARD = "record.json", "forward.safetensors", "backward.safetensors"
TRAINING, TRAINING_RECORD = "training.safetensors", "training.json"
_PARTS = {
    "gradients": "gradient of ",
    "input_gradients": "gradient of input ",
    "state": "after the pass ",
}
_CURVES = ("losses", "learning_rates")


def tap_name(key: str, path: str) -> str:
    """Name of one tensor of a call: "layers.0", or "layers.0[1]" inside a structure."""
    return f"{key}[{path}]" if path else key


def write_recording(recording: Recording, folder: Path) -> None:
    """Write one pass into a folder, which is made, array by array.

    Args:
        recording: the pass; of its state only what it holds is written.
        folder: new.
    """
    folder.mkdir(parents=True, exist_ok=True)
    calls = {
        key: {"name": call.name, "number": call.number, "parent": call.parent}
        for key, call in recording.calls.items()
    }
    with TensorWriter(folder / FORWARD, once=True) as taps:
        for title, part in (("", "outputs"), ("input of ", "inputs")):  # taps have their own names
            for key, call in recording.calls.items():
                calls[key][part] = [
                    [path, taps.add(title + tap_name(key, path), array)]
                    for path, array in getattr(call, part)
                ]
    record: dict[str, Any] = {"calls": list(calls.values())}
    with TensorWriter(folder / BACKWARD, once=True) as writer:
        record["loss"] = writer.add("loss", recording.loss)
        for key, call in recording.calls.items():
            for kind, gradients in (("at", call.grad_outputs), ("into", call.grad_inputs)):
                calls[key][f"gradients_{kind}"] = {
                    path: writer.add(f"gradient {kind} {tap_name(key, path)}", array)
                    for path, array in gradients.items()
                }
        for part, title in _PARTS.items():
            arrays = getattr(recording, part)
            record[part] = {name: writer.add(title + name, a) for name, a in arrays.items()}
    record["backward_order"] = [list(at) for at in recording.backward_order]
    record["stamp"], record["pooled"] = dict(recording.stamp), recording.pooled
    record["written"] = recording.written
    write_json(folder / RECORD, record)


class _Picker:
    """Tensors of one file by name; a name that is not there is refused."""

    def __init__(self, arrays: Mapping[str, np.ndarray], where: str) -> None:
        self.arrays, self.where = arrays, where

    def one(self, name: Any) -> np.ndarray:
        return self.reader(name)()

    def reader(self, name: Any) -> Reader:
        if not isinstance(name, str) or name not in self.arrays:
            raise ValueError(f"{self.where}: has no tensor {name!r}, though the record names it")
        return functools.partial(self.arrays.__getitem__, name)

    def many(self, names: Mapping[str, Any]) -> Lazy:
        return Lazy({key: self.reader(name) for key, name in names.items()})

    def leaves(self, rows: Iterable[Any]) -> LazyLeaves:
        lazy = LazyLeaves()
        for row in rows:
            if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str):
                raise ValueError(f"{self.where}: the record has a bad row {row!r}")
            lazy.hold(row[0], self.reader(row[1]))
        return lazy


def read_recording(folder: Folder, prefix: str) -> Recording:
    """Read one pass back.

    Args:
        folder: the dump.
        prefix: its subfolder, "float32" or "float32/oracle".

    Raises:
        ValueError: a record that is not whole.
    """
    name = f"{prefix}/{RECORD}"
    where = str(folder.path / name)
    record = folder.json(name)
    taps = _Picker(folder.tensors(f"{prefix}/{FORWARD}"), str(folder.path / prefix / FORWARD))
    gradients = _Picker(
        folder.tensors(f"{prefix}/{BACKWARD}"), str(folder.path / prefix / BACKWARD)
    )
    recording = Recording()
    for row in field_of(record, "calls", list, where):
        if not isinstance(row, dict):
            raise ValueError(f"{where}: a call is a {type(row).__name__}, expected an object")
        call = Call(
            field_of(row, "name", str, where),
            field_of(row, "number", int, where),
            field_of(row, "parent", str, where),
            taps.leaves(field_of(row, "outputs", list, where)),
            taps.leaves(field_of(row, "inputs", list, where)),
            gradients.many(field_of(row, "gradients_at", dict, where)),
            gradients.many(field_of(row, "gradients_into", dict, where)),
        )
        recording.calls[call.key] = call
    order = field_of(record, "backward_order", list, where)
    if not all(isinstance(at, list) and len(at) == 2 for at in order):
        raise ValueError(f"{where}: 'backward_order' holds something else than pairs")
    recording.backward_order = [(str(key), str(path)) for key, path in order]
    recording.loss = gradients.one(field_of(record, "loss", str, where))
    recording.gradients = gradients.many(field_of(record, "gradients", dict, where))
    recording.input_gradients = gradients.many(field_of(record, "input_gradients", dict, where))
    recording.state = gradients.many(field_of(record, "state", dict, where))
    recording.stamp = field_of(record, "stamp", dict, where)
    recording.pooled = field_of(record, "pooled", bool, where)
    recording.written = field_of(record, "written", list, where)
    return recording


def write_training(run: TrainingRun, folder: Path) -> None:
    """Write a training run into a folder, which is made, array by array."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"state": run.state, **run.moments}
    names: dict[str, dict[str, str]] = {}
    with TensorWriter(folder / TRAINING) as writer:
        curves = {
            name: writer.add(name, np.asarray(getattr(run, name), "float64")) for name in _CURVES
        }
        for kind, arrays in kinds.items():
            names[kind] = {name: writer.add(f"{kind}/{name}", a) for name, a in arrays.items()}
    state = names.pop("state")
    record = {"curves": curves, "state": state, "moments": names, "stamp": dict(run.stamp)}
    write_json(folder / TRAINING_RECORD, record)


def read_training(folder: Folder, prefix: str) -> TrainingRun:
    """Read a training run back; see `read_recording`."""
    name = f"{prefix}/{TRAINING_RECORD}"
    where = str(folder.path / name)
    record = folder.json(name)
    tensors = _Picker(folder.tensors(f"{prefix}/{TRAINING}"), str(folder.path / prefix / TRAINING))
    curves = tensors.many(field_of(record, "curves", dict, where))
    if set(curves) != set(_CURVES) or any(a.ndim != 1 for a in curves.values()):
        raise ValueError(f"{where}: expected the curves {', '.join(_CURVES)}")
    run = TrainingRun(*(curves[name].tolist() for name in _CURVES))
    run.state = tensors.many(field_of(record, "state", dict, where))
    for kind, names in field_of(record, "moments", dict, where).items():
        if not isinstance(names, dict):
            raise ValueError(f"{where}: the moments {kind!r} are no object")
        run.moments[kind] = tensors.many(names)
    run.stamp = field_of(record, "stamp", dict, where)
    return run
