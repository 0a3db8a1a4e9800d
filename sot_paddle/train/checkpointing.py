"""Folders that are either whole or absent, whenever the process is killed.

A folder is written as `sot_paddle.atomic` does, and closed with a manifest of sizes and checksums.
A kill at any moment leaves either the old state or the new one, and a stray temporary entry that
the next run removes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from sot_paddle import reading
from sot_paddle.atomic import (
    DISCARDED,
    WRITING,
    atomic_directory,
    atomic_file,
    beside,
    remove,
    sync,
)
from sot_paddle.checkpoint import read_tensors
from sot_paddle.failures import NonFiniteState, StorageFailure
from sot_paddle.train import run_record
from sot_paddle.train.run_record import POINTER

PREFIX = "checkpoint-"
MANIFEST = reading.MANIFEST

STATE = "state.json"
"""File of a checkpoint without which it cannot be resumed from."""


def write_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder so that it appears whole or not at all, replacing one of the same name.

    Its files are entered in the record of the folder around it, when there is one. What somebody
    else has put into the one that is replaced stays.

    Args:
        target: final path of the folder.
        fill: writes the files into the temporary folder that it is given.

    Raises:
        NonFiniteState: a tensor among the files holds NaN or infinity; nothing is left of them.
        StorageFailure: the disk refused (full, read-only, no permission).
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_directory(target) as temporary:
            fill(temporary)
            _check_finite(temporary, target)
            names = close_folder(temporary)
            run_record.note(target.parent, [f"{target.name}/{name}" for name in names])
            for name in _foreign(target):
                if not (temporary / name).exists():
                    (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(target / name, temporary / name)
    except OSError as error:
        raise StorageFailure(
            f"cannot write {target}: {error.strerror or error}; what was saved before is intact. "
            "Free some space (or choose another --output_dir) and run the same command again "
            "to continue"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically.

    Raises:
        StorageFailure: the disk refused.
    """
    try:
        with atomic_file(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise StorageFailure(f"cannot write {path}: {error.strerror or error}") from error


def write_checkpoint(root: Path, step: int, fill: Callable[[Path], None]) -> Path:
    """Write ``checkpoint-<step>`` under a run's folder and move the pointer to it.

    A whole and finite checkpoint of that step is left as it is: a resumed run repeats it bit for
    bit.

    Args:
        root: output folder of the run.
        step: optimizer steps done.
        fill: writes the files.

    Returns:
        Path of the checkpoint.

    Raises:
        NonFiniteState, StorageFailure: see :func:`write_folder`.
    """
    target = root / f"{PREFIX}{step}"
    if not is_whole(target) or nonfinite_tensor(target) is not None:
        write_folder(target, fill)
    _point(root, target.name)
    return target


def list_checkpoints(root: Path) -> list[Path]:
    """Checkpoint folders under ``root`` by ascending step, whole or not."""
    steps = {path: path.name.removeprefix(PREFIX) for path in root.glob(f"{PREFIX}*")}
    found = [path for path, step in steps.items() if step.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: (int(steps[path]), path))


def last_whole(root: Path, *, finite: bool = False) -> Path | None:
    """The newest checkpoint that a run can be continued from, None without one.

    Args:
        root: output folder of the run.
        finite: pass those over that hold a number that is not finite.
    """
    for path in reversed(list_checkpoints(root)):
        whole = STATE in listed_files(path) and is_whole(path)
        if whole and not (finite and nonfinite_tensor(path)):
            return path
    return None


def way_back(root: Path) -> str:
    """What a run that met a number that is not finite can be told: where to go on, and how."""
    last = last_whole(root, finite=True) or "none yet"
    return f"last finite checkpoint: {last}; try a lower learning rate"


def first_nonfinite(arrays: Iterable[tuple[str, np.ndarray]]) -> str | None:
    """Name of the first (name, array) whose array holds NaN or infinity, None without one."""
    for name, array in arrays:
        if array.dtype.kind not in "biu" and not np.isfinite(array).all():
            return name
    return None


def nonfinite_tensor(folder: Path) -> str | None:
    """The first tensor of a checkpoint that holds NaN or infinity.

    Args:
        folder: its ``.safetensors`` files are read: weights, averages, the optimizer's state.

    Returns:
        ``"head.fc.weight (in model.safetensors)"``, None when every number is finite.

    Raises:
        ValueError: a file is damaged.
    """
    for path in sorted(folder.glob("*.safetensors")):
        name = first_nonfinite(read_tensors(path)[0].items())
        if name is not None:
            return f"{name} (in {path.name})"
    return None


def is_whole(folder: Path) -> bool:
    """Whether every file named by the folder's manifest has its size and checksum."""
    files = listed_files(folder)
    return bool(files) and all(reading.is_intact(folder / n, entry) for n, entry in files.items())


def listed_files(folder: Path) -> dict[str, dict[str, int]]:
    """Files of the folder's manifest with size and checksum, empty without a sound one."""
    try:
        return reading.listed_files(folder) or {}
    except ValueError:
        return {}


def prune(root: Path, *, keep: int | None, keep_states: int, state_files: tuple[str, ...]) -> None:
    """Remove what old checkpoints no longer need, newest kept; what is not theirs stays.

    One that a signal asked for goes before all others: the run without it would not have it.

    Args:
        root: output folder of the run.
        keep: checkpoints to keep, None for all.
        keep_states: checkpoints that keep what resuming needs; older ones keep their weights.
        state_files: the files that only resuming needs.
    """
    newest_first = [path for path in reversed(list_checkpoints(root)) if listed_files(path)]
    passing = [path for path in newest_first[1:] if _is_passing(path)]
    lasting = [path for path in newest_first if path not in passing]
    for path in (*passing, *(lasting[keep:] if keep is not None else ())):
        if set(_foreign(path)) - set(state_files):
            _drop_files(path, tuple(listed_files(path)))
        else:
            _discard(path)
    for path in lasting[keep_states:keep]:
        _drop_files(path, state_files)


def _is_passing(folder: Path) -> bool:
    """Whether a checkpoint was written for a signal alone; one without a sound state was not."""
    try:
        return bool(reading.read_object(folder / STATE).get("passing"))
    except ValueError:
        return False


def settle(root: Path) -> None:
    """Clear up what a killed run left half-done under ``root``.

    A folder that was moved aside when the kill came before its successor was in place is moved
    back: the older whole state wins over none. The pointer is put on the newest whole
    checkpoint, which the kill may have left without it.
    """
    for path in run_record.leftovers(root):
        target = root / path.name.removeprefix(DISCARDED).rpartition("-")[0]
        if path.name.startswith(DISCARDED) and not target.exists() and is_whole(path):
            os.replace(path, target)
    for path in run_record.leftovers(root):
        remove(path)
    newest = last_whole(root)
    if newest is not None:
        _point(root, newest.name)


def _point(root: Path, target: str) -> None:
    """Move the pointer to a checkpoint atomically; the run's record has its name first."""
    link = root / POINTER
    temporary = beside(link, WRITING)
    try:
        run_record.note(root, [POINTER])
        os.symlink(target, temporary)
        os.replace(temporary, link)
        sync(link.parent)
    except OSError as error:
        raise StorageFailure(f"cannot write {link}: {error.strerror or error}") from error


def _check_finite(folder: Path, target: Path) -> None:
    """Refuse to let a folder with a NaN or an infinite number appear under its final name."""
    bad = nonfinite_tensor(folder)
    if bad is not None:
        raise NonFiniteState(
            f"{target} is not written: {bad} holds a number that is not finite; "
            f"{way_back(target.parent)}"
        )


def close_folder(folder: Path) -> list[str]:
    """Write a folder's manifest of sizes and checksums, last; returns the names of all files."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = {"size": path.stat().st_size, "crc32": reading.crc32_of(path)}
    write_text(folder / MANIFEST, json.dumps({"files": files}, indent=1) + "\n")
    return [*files, MANIFEST]


def _foreign(folder: Path) -> list[str]:
    """Files in a folder with a manifest that does not name them."""
    ours = listed_files(folder)
    found = (p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file())
    return [name for name in found if name not in ours and name != MANIFEST] if ours else []


def _discard(folder: Path) -> None:
    """Remove a checkpoint: out of sight first, so that a kill cannot leave half of it."""
    hidden = beside(folder, DISCARDED)
    os.replace(folder, hidden)
    remove(hidden)


def _drop_files(folder: Path, names: tuple[str, ...]) -> None:
    """Remove files of a checkpoint; the manifest forgets them first."""
    present = [name for name in names if (folder / name).is_file()]
    if not present:
        return
    files = {name: entry for name, entry in listed_files(folder).items() if name not in present}
    write_text(folder / MANIFEST, json.dumps({"files": files}, indent=1) + "\n")
    for name in present:
        (folder / name).unlink()
