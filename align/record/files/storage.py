"""The files of a dump: tensors in safetensors, the rest in strict JSON, one manifest of hashes.

The manifest is written last, inside a temporary folder that takes its name when it is complete.
Reading refuses everything else in one line. A tensor is read when it is looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sot_paddle import checkpoint, reading, strict_json
from sot_paddle.atomic import atomic_directory
from sot_paddle.checkpoint import TensorSpec

FORMAT, VERSION = "align dump", 4
MANIFEST = "manifest.json"


def digest(array: np.ndarray) -> str:
    """SHA-256 over dtype, shape and the bytes in C order."""
    array = np.asarray(array)
    found = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    found.update(_bytes(array))
    return found.hexdigest()


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
        held = self._names.setdefault(key, name)
        if self._once and (held != name or self._stored.get(name) == key):
            return held
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
    found = {
        path.relative_to(folder).as_posix(): {
            "sha256": reading.sha256_of(path),
            "bytes": path.stat().st_size,
        }
        for path in files
    }
    write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, "files": found})


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
