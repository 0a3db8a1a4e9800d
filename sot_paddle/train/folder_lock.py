"""The lock on an output folder, or on a path that is replaced: two runs never write into one.

The system drops it when the process ends, however it ends: a run that was killed leaves a lock
file behind and no lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from sot_paddle import reading
from sot_paddle.atomic import clear_leftovers, naming

LOCK = "run.lock"
"""File whose lock stands for the folder; says who holds it."""

_LONGEST = 4096  # bytes of a lock file that are read
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_held: set[int] = set()


def _let_go() -> None:
    """In a forked child (a process that reads images): the lock is the parent's alone."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Hold the lock of a folder inside of the block; makes the folder when it is missing.

    Of several processes of one run, the first one holds it. Where the file system has no locks,
    a line on stderr says so and the run goes on.

    Args:
        root: output folder.

    Raises:
        ValueError: another run holds it; says which one. Or the lock file is no regular file.
        OSError: the folder cannot be made, or the lock file not be written.
    """
    root.mkdir(parents=True, exist_ok=True)
    descriptor = _opened(root / LOCK)
    _held.add(descriptor)
    try:
        _take(descriptor, root, fcntl.LOCK_EX)
        _write(descriptor, _name(), root)
        yield
        _write(descriptor, "", root)  # nobody holds it now; what a kill leaves is stale
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


@contextlib.contextmanager
def hold_beside(path: Path) -> Iterator[None]:
    """Hold a lock on a file or folder that the block replaces as a whole.

    The lock is a hidden file beside it, gone after the block. What killed writers of the path left
    is put back or removed before the block.

    Args:
        path: of the folder around it, which exists, nothing else is locked.

    Raises:
        ValueError: another process holds it; says which one.
        OSError: the lock file cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    while True:
        with naming(path, lock):
            descriptor = _opened(lock)
        with contextlib.ExitStack() as ending:
            ending.callback(os.close, descriptor)
            _take(descriptor, path, fcntl.LOCK_EX)
            if not lock.exists() or not os.path.samestat(os.fstat(descriptor), lock.stat()):
                continue  # its holder ended in between and has removed it
            ending.callback(_held.discard, descriptor)
            ending.callback(lock.unlink, missing_ok=True)
            _held.add(descriptor)
            _write(descriptor, _name(), path)
            clear_leftovers(path)
            yield
            return


def refuse_held(root: Path) -> None:
    """Refuse a folder in which another run is at work; nothing is written.

    Raises:
        ValueError: says which one.
    """
    if not os.path.lexists(root / LOCK):
        return
    with reading.open_file(root / LOCK) as lock:
        _take(lock.fileno(), root, fcntl.LOCK_SH)


def _opened(lock: Path) -> int:
    """Descriptor of a lock file that is there from now on."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{lock} is no regular file, and no lock of a run: remove it")
    return descriptor


def _take(descriptor: int, root: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"{root} is in use by another run ({_holder(descriptor)}): wait until it has ended, "
            "or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        print(f"{root} cannot be locked ({error.strerror}): start no second run", file=sys.stderr)


def _name() -> str:
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started})


def _write(descriptor: int, text: str, path: Path) -> None:
    with naming(path, path):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{text}\n".encode() if text else b"", 0)


def _holder(descriptor: int) -> str:
    """Who the file says holds the lock."""
    try:
        found = reading.parse_json(os.pread(descriptor, _LONGEST, 0), LOCK)
        return f"process {found['pid']} on {found['host']}, started {found['started']}"
    except (ValueError, KeyError, TypeError):
        return "it has not written its name yet"
