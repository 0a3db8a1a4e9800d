"""The lock on an output folder, or on a path that is replaced: two runs never write into one.

The system drops it when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from sot_paddle.atomic import clear_leftovers

LOCK = "run.lock"
"""File whose lock stands for the folder; it is gone afterwards."""


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Hold the lock of a folder inside of the block; makes the folder when it is missing.

    A folder that was made for the block and is empty at its end goes again. Of several processes
    of one run, the first one holds the lock.
    """
    if root.exists() and not root.is_dir():
        raise ValueError(f"{root} is no folder: choose another --output_dir")
    new_folders = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    try:
        with _held(root / LOCK, root):
            yield
    finally:
        for folder in new_folders:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


@contextlib.contextmanager
def hold_beside(path: Path) -> Iterator[None]:
    """Hold a lock on a file or folder that the block replaces as a whole.

    What killed writers of the path left is put back or removed before the block.
    """
    with _held(path.with_name(f".{path.name}.lock"), path):
        clear_leftovers(path.parent, re.escape(path.name))
        yield


@contextlib.contextmanager
def _held(file: Path, subject: Path) -> Iterator[None]:
    if not file.parent.is_dir():  # filelock would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(subject))
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"{subject} is in use by another run: wait until it has ended, or choose another folder"
        ) from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        lock.release()
