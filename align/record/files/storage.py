"""The files of a dump: tensors in safetensors, the rest in strict JSON, one manifest of hashes.

The manifest is written last, inside a temporary folder that takes its name when it is complete.
Reading refuses everything else in one line; a tensor is read when it is looked at. The pass lies in
`forward.safetensors` (taps) and `backward.safetensors` (the loss and every gradient), and
`record.json` says which tensor is what, in the order of execution; equal arrays are stored once.
A training lies in `training.safetensors` (final tensors, moments), `drift.safetensors` (sampled
weights of every step) and `training.json` (curves).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from align.record.arrays import Lazy, Reader, TrainingRun
from align.record.recording import Call, Recording
from sot_paddle import checkpoint, reading, strict_json
from sot_paddle.atomic import atomic_directory

FORMAT, VERSION = "align dump", 6
MANIFEST = "manifest.json"


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and the bytes in C order."""
    array = np.asarray(array)
    hasher = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return hasher.hexdigest()


class EqualOnce:
    """Arrays for a tensor file, equal ones under one name; they are read again to be written.

    Attributes:
        arrays: by the name under which each lies in the file.
    """

    def __init__(self) -> None:
        self.arrays = Lazy()
        self._names: dict[str, str] = {}

    def add(self, title: str, readers: Mapping[str, Reader]) -> dict[str, str]:
        """Take arrays in.

        Args:
            title: begins the names of those that are new: "layers.0", "layers.0[1]".
            readers: path in a structure ("" for its only one) -> what reads the array.

        Returns:
            Path -> the name under which the array lies: its own, or that of an equal one.

        Raises:
            ValueError: another array has this name.
        """
        stored_names = {}
        for path, read in readers.items():
            name = f"{title}[{path}]" if path else title
            stored_names[path] = self._names.setdefault(digest(read()), name)
            if stored_names[path] == name:
                if name in self.arrays and digest(self.arrays[name]) != digest(read()):
                    raise ValueError(f"two different tensors of this run are called {name!r}")
                self.arrays.hold(name, read)
        return stored_names


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
        files = sorted(file for file in temporary.rglob("*") if file.is_file())
        rows = {
            file.relative_to(temporary).as_posix(): {
                "sha256": reading.sha256_of(file),
                "bytes": file.stat().st_size,
            }
            for file in files
        }
        manifest = {"format": FORMAT, "version": VERSION, "files": rows}
        write_json(temporary / MANIFEST, manifest)


class Folder:
    """A complete dump on disk; opening it checks every file against the manifest.

    Raises:
        ValueError: not a dump, another version, a file that is missing or was changed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise ValueError(f"{path}: no such folder; expected one that `align dump` wrote")
        if not (self.path / MANIFEST).is_file():
            raise ValueError(f"{path}: has no {MANIFEST}: not a dump, or one that was not finished")
        manifest = reading.read_json(self.path / MANIFEST)
        if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
            raise ValueError(
                f"{path}: {MANIFEST} says {manifest.get('format')!r}, format version "
                f"{manifest.get('version')!r}; this program reads {FORMAT!r}, {VERSION}: dump it "
                "again with this version of the project"
            )
        with as_written(self.path / MANIFEST):
            self.files: dict[str, Any] = dict(manifest["files"])
            for name, row in self.files.items():
                self._check(name, row["bytes"], row["sha256"])

    def _check(self, name: str, size: int, sha256: str) -> None:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise ValueError(f"has a bad row {name!r}")
        file = self.path / name
        if file.is_symlink() or not file.is_file():
            raise ValueError(f"lists {name}, which is missing")
        if file.stat().st_size != size:
            raise ValueError(f"{name} has {file.stat().st_size} bytes, {size} were written")
        if reading.sha256_of(file) != sha256:
            raise ValueError(f"the SHA-256 of {name} is another one: it was changed")

    def _listed(self, name: str) -> Path:
        if name not in self.files:
            raise ValueError(f"{self.path}: has no {name}")
        return self.path / name

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file, which holds an object."""
        return reading.read_json(self._listed(name))

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        """Every tensor of a safetensors file, each read on access."""
        return checkpoint.read_tensors(self._listed(name))[0]


@contextlib.contextmanager
def as_written(file: Path) -> Iterator[None]:
    """Refuse a file that is not as a dump has it: what its reading raises becomes one line."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise ValueError(f"{file}: not as `align dump` wrote it: {kind}{error}") from error


RECORD, FORWARD, BACKWARD = "record.json", "forward.safetensors", "backward.safetensors"
TRAINING, TRAINING_RECORD = "training.safetensors", "training.json"
DRIFT, ROWS = "drift.safetensors", "weights"
_ARRAYS = ("gradients", "input_gradients", "state")
_PLAIN = ("stamp", "pooled", "written")


def _readers(arrays: Mapping[str, np.ndarray]) -> dict[str, Reader]:
    return {name: functools.partial(arrays.__getitem__, name) for name in arrays}


def write_recording(recording: Recording, folder: Path) -> None:
    """Write one pass into a folder, which is made, array by array."""
    folder.mkdir(parents=True, exist_ok=True)
    taps, gradients = EqualOnce(), EqualOnce()
    calls = [
        {
            "name": call.name,
            "number": call.number,
            "parent": call.parent,
            "outputs": taps.add(key, _readers(call.outputs)),
            "inputs": taps.add(f"input of {key}", _readers(call.inputs)),
            "grad_outputs": gradients.add(f"gradient at {key}", _readers(call.grad_outputs)),
            "grad_inputs": gradients.add(f"gradient into {key}", _readers(call.grad_inputs)),
        }
        for key, call in recording.calls.items()
    ]
    record: dict[str, Any] = {"calls": calls, "backward_order": recording.backward_order}
    record["loss"] = gradients.add("loss", {"": lambda: recording.loss})
    for part in _ARRAYS:
        record[part] = gradients.add(part, _readers(getattr(recording, part)))
    for part in _PLAIN:
        record[part] = getattr(recording, part)
    checkpoint.write_tensors(folder / FORWARD, taps.arrays)
    checkpoint.write_tensors(folder / BACKWARD, gradients.arrays)
    write_json(folder / RECORD, record)


def _picked(tensors: Mapping[str, np.ndarray], names: Mapping[str, str]) -> dict[str, Reader]:
    """Return what reads the tensors of some names; refuse one that is not there."""
    missing = [name for name in names.values() if name not in tensors]
    if missing:
        raise ValueError(f"has no tensor {missing[0]!r}, though the record names it")
    return {path: functools.partial(tensors.__getitem__, name) for path, name in names.items()}


def read_recording(folder: Folder, prefix: str) -> Recording:
    """Read one pass back.

    Args:
        prefix: its subfolder, "float32" or "float32/oracle".

    Raises:
        ValueError: a record that is not whole.
    """
    record, recording = folder.json(f"{prefix}/{RECORD}"), Recording()
    taps, gradients = (folder.tensors(f"{prefix}/{name}") for name in (FORWARD, BACKWARD))
    with as_written(folder.path / prefix / RECORD):
        for row in record["calls"]:
            call = Call(
                row["name"],
                row["number"],
                row["parent"],
                Lazy(_picked(taps, row["outputs"])),
                Lazy(_picked(taps, row["inputs"])),
                Lazy(_picked(gradients, row["grad_outputs"])),
                Lazy(_picked(gradients, row["grad_inputs"])),
            )
            recording.calls[call.key] = call
        recording.backward_order = [(key, path) for key, path in record["backward_order"]]
        recording.loss = _picked(gradients, record["loss"])[""]()
        for part in _ARRAYS:
            setattr(recording, part, Lazy(_picked(gradients, record[part])))
        for part in _PLAIN:
            setattr(recording, part, record[part])
    return recording


def write_training(run: TrainingRun, folder: Path) -> None:
    """Write a training run into a folder, which is made, array by array."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Reader] = {}
    for kind, tensors in {"state": run.state, **run.moments}.items():
        arrays |= {f"{kind}/{name}": read for name, read in _readers(tensors).items()}
    checkpoint.write_tensors(folder / TRAINING, Lazy(arrays))
    rows = {ROWS: np.stack([*run.samples])} if len(run.samples) else {}
    checkpoint.write_tensors(folder / DRIFT, rows)
    curves = {"losses": run.losses, "learning_rates": run.learning_rates}
    write_json(folder / TRAINING_RECORD, {**curves, "stamp": run.stamp})


def read_training(folder: Folder, prefix: str) -> TrainingRun:
    """Read a training run back; see `read_recording`."""
    record, kinds = folder.json(f"{prefix}/{TRAINING_RECORD}"), {"state": Lazy()}
    for title, read in _readers(folder.tensors(f"{prefix}/{TRAINING}")).items():
        kind, _, name = title.partition("/")
        kinds.setdefault(kind, Lazy()).hold(name, read)
    with as_written(folder.path / prefix / TRAINING_RECORD):
        losses, rates = ([float(x) for x in record[name]] for name in ("losses", "learning_rates"))
        rows = folder.tensors(f"{prefix}/{DRIFT}").get(ROWS, ())
        return TrainingRun(losses, rates, kinds.pop("state"), kinds, record["stamp"], rows)
