"""The lock on an output folder: two runs never write into one.

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
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

LOCK = "run.lock"
"""File whose lock stands for the folder; says who holds it."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_held: set[int] = set()


def _let_go() -> None:
    """In a forked child (a process that reads images): the lock is the parent's alone."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def hold(root: Path) -> Iterator[None]:
    """Hold the lock of an existing folder inside of the block.

    Of several processes of one run, the first one holds it. Where the file system has no locks,
    a line on stderr says so and the run goes on.

    Args:
        root: output folder.

    Raises:
        ValueError: another run holds it; says which one.
        OSError: the lock file cannot be written.
    """
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    _held.add(descriptor)
    try:
        _take(descriptor, root, fcntl.LOCK_EX)
        _write(descriptor, _name())
        yield
        _write(descriptor, "")  # nobody holds it now; what a kill leaves is stale
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def refuse_held(root: Path) -> None:
    """Refuse a folder in which another run is at work; nothing is written.

    Raises:
        ValueError: says which one.
    """
    try:
        descriptor = os.open(root / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return  # no lock file, or one that :func:`hold` will complain about
    try:
        _take(descriptor, root, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _take(descriptor: int, root: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"{root} is in use by another run ({_holder(descriptor)}): wait until it has ended, "
            "or choose another --output_dir"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        print(f"{root} cannot be locked ({error.strerror}): start no second run", file=sys.stderr)


def _name() -> str:
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started})


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{text}\n".encode() if text else b"", 0)


def _holder(descriptor: int) -> str:
    """Who the file says holds the lock."""
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {found['pid']} on {found['host']}, started {found['started']}"
    except (ValueError, KeyError, TypeError):
        return "it has not written its name yet"
