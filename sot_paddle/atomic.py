"""Files and folders that are there whole or not at all, also after a crash, and written by one run.

Each is written under a temporary name beside its own, flushed to the disk, and renamed; a folder
that is replaced is renamed aside first. A kill leaves the old state or the new one, and a stray
entry that begins with `WRITING` or `DISCARDED`; between the two renames of a folder the old one is
under `DISCARDED`, and `clear_leftovers` puts it back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

LOCK = "run.lock"
"""File whose lock stands for a folder; it is gone afterwards, and the system drops its lock."""
WRITING, DISCARDED = ".writing-", ".discarded-"
"""Begin the names of what is being written or removed; the process id and a drawn number end it."""


def beside(path: Path, start: str) -> Path:
    """A hidden name in the same folder that no other writer of any process has, or can foresee."""
    return path.with_name(f"{start}{path.name}-{os.getpid()}.{secrets.randbelow(10**12)}")


@contextlib.contextmanager
def naming(path: Path, temporary: Path) -> Iterator[None]:
    """Name a user's path, not a temporary one or none, in what the system refuses inside."""
    try:
        yield
    except OSError as error:
        is_ours = error.filename is None or str(error.filename).startswith(str(temporary))
        if error.errno is None or not is_ours:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces `path` only when the block ends without an exception.

    Raises:
        OSError: the folder is missing or not writable, the disk is full, or a folder, a device or a
            pipe has the name; nothing is left.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a device would become a file, for all programs
        raise FileExistsError(17, "not a regular file", str(path))
    temporary = beside(path, WRITING)
    try:
        with naming(path, temporary):
            with open(temporary, "xb") as handle:  # through no link
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, path)
    finally:
        remove(temporary)  # gone already when all went well
    sync(path.parent)


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a whole file, see `atomic_file`, and its folder when it is missing; returns the path.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as handle:
        handle.write(content)
    return path


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike[str], *, is_flushed: bool = False) -> Iterator[Path]:
    """Yield a folder that takes the name `path` only when the block ends without an exception.

    Args:
        path: destination; what is there is replaced, and stays when something fails. The folder
            around it must exist.
        is_flushed: the block leaves its files on the disk.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    old = beside(path, DISCARDED)
    with _temporary_folder(path) as temporary:
        yield temporary
        for written in () if is_flushed else temporary.rglob("*"):
            sync(written)
        sync(temporary)
        try:
            if path.exists():
                os.replace(path, old)
            os.replace(temporary, path)
        finally:
            if old.exists() and not path.exists():
                os.replace(old, path)
            remove(old)
    sync(path.parent)


@contextlib.contextmanager
def atomic_files(*paths: Path) -> Iterator[Path]:
    """Yield a folder for files that take their names only when all are there.

    Args:
        paths: destinations in one folder, which must exist; each is written under its name into
            the folder yielded. The first one is the work, the others are about it: at no instant
            is one of them there beside another one's work.

    Raises:
        OSError: one of them cannot be written; what was there before is untouched.
    """
    with _temporary_folder(paths[0]) as temporary:
        yield temporary
        for path in paths:
            sync(temporary / path.name)
        for path in paths[1:]:
            path.unlink(missing_ok=True)
        for path in paths:
            os.replace(temporary / path.name, path)
    sync(paths[0].parent)


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a folder beside a path, which is gone in the end."""
    temporary = beside(path, WRITING)
    try:
        with naming(path, temporary):
            temporary.mkdir()
            yield temporary
    finally:
        remove(temporary)


def leftovers_of(names: str) -> re.Pattern[str]:
    """What a kill leaves of entries whose names match: its ``start``, and the ``name``."""
    starts = f"{re.escape(WRITING)}|{re.escape(DISCARDED)}"
    return re.compile(rf"(?P<start>{starts})(?P<name>{names})-\d+\.\d+")


def clear_leftovers(folder: Path, names: str) -> None:
    """Put back or remove what killed writers left; nobody may be writing those entries now.

    Args:
        names: a regular expression of the entries' names.
    """
    for other in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = leftovers_of(names).fullmatch(other.name)
        if match is None:
            continue
        path = folder / match["name"]
        if match["start"] == DISCARDED and other.is_dir() and not path.exists():
            os.replace(other, path)  # moved aside before its successor had its name
        else:
            remove(other)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder as far as that works."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file's content, or a folder's renames, survive a power cut (POSIX)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Hold the lock of a folder inside of the block; makes the folder when it is missing.

    A folder that was made for the block and is empty at its end goes again. Of several processes
    of one run, the first one holds the lock.

    Raises:
        ValueError: another run has it, or something else than a folder has the name.
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
    """Hold a lock on a file or folder that the block replaces as a whole; see `hold`.

    What killed writers of the path left is put back or removed before the block.
    """
    if not path.parent.is_dir():  # filelock would make it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    with _held(path.with_name(f".{path.name}.lock"), path):
        clear_leftovers(path.parent, re.escape(path.name))
        yield


@contextlib.contextmanager
def _held(file: Path, subject: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout  # slow to import

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
