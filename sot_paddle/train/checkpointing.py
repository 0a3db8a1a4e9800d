"""Checkpoints and the like: folders that are whole or absent, whenever the process is killed.

Each file is written once and flushed to the disk; a manifest of sizes and checksums comes last.
`sot_paddle.atomic` says what a kill leaves, and the next run removes it.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sot_paddle import reading
from sot_paddle.atomic import (
    WRITING,
    atomic_directory,
    beside,
    clear_leftovers,
    remove,
)
from sot_paddle.checkpoint import safetensors_parts
from sot_paddle.cli import NonFinite, TrainingStopped

PREFIX = "checkpoint-"
MANIFEST = reading.MANIFEST
POINTER = "last"
"""Symbolic link to the newest checkpoint, for people and other programs."""
STATE, OPTIMIZER = "state.json", "optimizer.safetensors"
"""What only resuming needs, and older checkpoints drop."""
KEPT_STATES = 2
"""So many of the newest checkpoints keep what resuming needs; older ones keep their weights."""
ENTRIES = rf"{PREFIX}\d+|best|{POINTER}|runs|(?:run|metrics|evaluation)\.json"
"""What a run writes into its folder, beside predictions: a regular expression of the names."""


@dataclass(frozen=True)
class TensorFile:
    """The content of a ``.safetensors`` file."""

    arrays: Mapping[str, np.ndarray]
    metadata: Mapping[str, str] = field(default_factory=dict)


def write_folder(target: Path, files: Iterable[tuple[str, bytes | TensorFile]]) -> None:
    """Write a folder so that it appears whole or not at all, replacing one of the same name.

    Files in the old folder that no run wrote are copied into the new one.

    Raises:
        NonFinite: a tensor holds NaN or infinity; nothing is left of the new folder.
        TrainingStopped: the disk refused (full, read-only, no permission).
    """
    listed = {}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_directory(target, is_flushed=True) as folder:
            for name, content in files:
                parts = [content]
                if isinstance(content, TensorFile):
                    _require_finite(content.arrays, name, target)
                    parts = safetensors_parts(content.arrays, content.metadata)
                listed[name] = _write_file(folder / name, parts)
            _write_file(folder / MANIFEST, [json.dumps({"files": listed}, indent=1).encode()])
            for name in set(foreign_files(target)) - set(listed):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(target / name, folder / name)
    except OSError as error:
        raise TrainingStopped(
            f"cannot write {target}: {error.strerror or error}; what was saved before is intact. "
            "Free some space (or choose another --output_dir) and run the same command again "
            "to continue"
        ) from error


def _require_finite(arrays: Mapping[str, np.ndarray], file: str, target: Path) -> None:
    for name, array in arrays.items():
        if array.dtype.kind not in "biu" and not np.isfinite(array).all():
            raise NonFinite(
                f"{target} is not written: {name} (in {file}) holds a number that is not finite; "
                f"{way_back(target.parent)}"
            )


def _write_file(path: Path, parts: Iterable[bytes | memoryview]) -> dict[str, int]:
    """Write a file and flush it to the disk; returns its size and checksum."""
    size = checksum = 0
    with open(path, "xb") as handle:
        for part in parts:
            handle.write(part)
            checksum = zlib.crc32(part, checksum)
            size += len(part)
        handle.flush()
        os.fsync(handle.fileno())
    return {"size": size, "crc32": checksum}


def write_checkpoint(
    root: Path, step: int, files: Iterable[tuple[str, bytes | TensorFile]]
) -> None:
    """Write ``checkpoint-<step>`` into a run's folder and move the pointer to it.

    A whole checkpoint of that step is left as it is: a resumed run repeats it bit for bit.

    Raises:
        NonFinite, TrainingStopped: see :func:`write_folder`.
    """
    target = root / f"{PREFIX}{step}"
    if not is_whole(target):
        write_folder(target, files)
    _point(root, target.name)


def list_checkpoints(root: Path) -> list[Path]:
    """Checkpoint folders under ``root`` by ascending step, whole or not."""
    steps = {path: path.name.removeprefix(PREFIX) for path in root.glob(f"{PREFIX}*")}
    folders = [path for path, step in steps.items() if step.isdecimal() and path.is_dir()]
    return sorted(folders, key=lambda path: (int(steps[path]), path))


def last_whole(root: Path) -> Path | None:
    """The newest checkpoint that a run can be continued from, None without one."""
    newest_first = reversed(list_checkpoints(root))
    return next((path for path in newest_first if is_whole(path, with_state=True)), None)


def is_whole(folder: Path, *, with_state: bool = False) -> bool:
    """Whether every file of the folder's manifest has its size and checksum.

    Args:
        with_state: what only resuming needs has to be there; else it may be gone.
    """
    files, state = listed_files(folder), {STATE, OPTIMIZER}
    if not files or (with_state and not state <= set(files)):
        return False
    needed = [n for n in files if with_state or n not in state or (folder / n).exists()]
    return all(reading.is_intact(folder / name, files[name]) for name in needed)


def listed_files(folder: Path) -> dict[str, dict[str, int]]:
    """Files of the folder's manifest with size and checksum, empty without a sound one."""
    try:
        return reading.listed_files(folder / MANIFEST)
    except ValueError:
        return {}


def foreign_files(folder: Path) -> list[str]:
    """Files in a folder with a manifest that does not name them, by relative path."""
    ours = {*listed_files(folder), MANIFEST}
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in files]
    return [name for name in names if name not in ours] if len(ours) > 1 else []


def way_back(root: Path) -> str:
    """What a run that met a number that is not finite can be told: where to go on, and how."""
    last = last_whole(root) or "none yet"
    return f"last finite checkpoint: {last}; try a lower learning rate"


def prune(root: Path, *, keep: int | None) -> None:
    """Remove all but the newest checkpoints (None keeps all), and the states of older ones.

    A checkpoint into which somebody has put a file stays.
    """
    newest_first = [path for path in reversed(list_checkpoints(root)) if (path / MANIFEST).exists()]
    for path in newest_first[KEPT_STATES:keep]:
        for name in (STATE, OPTIMIZER):
            (path / name).unlink(missing_ok=True)
    for path in newest_first[keep:] if keep is not None else ():
        if listed_files(path) and not foreign_files(path):
            hidden = beside(path, WRITING)  # a kill leaves no half of a checkpoint
            os.replace(path, hidden)
            remove(hidden)


def settle(root: Path) -> Path | None:
    """Clear up what a killed run left half-done under ``root``; its newest whole checkpoint.

    A folder that was moved aside when the kill came before its successor was in place is moved
    back. The pointer is put on the newest whole checkpoint.
    """
    clear_leftovers(root, ENTRIES)
    newest = last_whole(root)
    if newest is not None:
        _point(root, newest.name)
    return newest


def _point(root: Path, target: str) -> None:
    """Move the pointer to a checkpoint atomically."""
    temporary = beside(root / POINTER, WRITING)
    os.symlink(target, temporary)
    os.replace(temporary, root / POINTER)
