"""Files and folders that are there whole or not at all, also after a crash.

Each is written under a temporary name beside its own, flushed to the disk, and renamed. A kill at
any moment leaves the old state or the new one, and a stray entry that begins with `WRITING`; a kill
between the two renames of a folder that replaces another leaves the old one under `DISCARDED`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

WRITING, DISCARDED = ".writing-", ".discarded-"
"""Begin the names of what is being written or removed; the process id and a count end them."""

_serial = itertools.count()


def beside(path: Path, start: str) -> Path:
    """A hidden name in the same folder that no other writer of any process has now.

    Args:
        path: destination.
        start: `WRITING` or `DISCARDED`.
    """
    return path.with_name(f"{start}{path.name}-{os.getpid()}.{next(_serial)}")


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces `path` only when the block ends without an exception.

    Readers see the old file or the new one, never a part; concurrent writers do not mix.

    Args:
        path: destination; its folder must exist.

    Yields:
        A temporary file in the same folder, synced to disk before it takes the name.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; nothing is left.
    """
    path = Path(path)
    temporary = beside(path, WRITING)
    try:
        with open(temporary, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # gone already when all went well
    sync(path.parent)


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a whole file, see `atomic_file`.

    Args:
        path: destination; its folder is made when it is missing.
        content: the whole file.

    Returns:
        ``path`` as a :class:`~pathlib.Path`.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as handle:
        handle.write(content)
    return path


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder that takes the name `path` only when the block ends without an exception.

    Args:
        path: destination; what is there is replaced, and stays when something fails. The folder
            around it must exist.

    Yields:
        A temporary folder beside it, whose files are synced to disk before it takes the name.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    temporary, old = beside(path, WRITING), beside(path, DISCARDED)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        for written in (*temporary.rglob("*"), temporary):
            sync(written)
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file's content, or a folder's renames, survive a power cut (POSIX)."""
    flags = os.O_RDONLY | (getattr(os, "O_DIRECTORY", 0) if os.path.isdir(path) else 0)
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
