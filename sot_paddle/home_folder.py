"""The user's folders: home, cache, and what stands in for a home that cannot be written.

In a container the home folder is often read-only or somebody else's, or the user has none, and
paddlenlp and visualdl make folders in it when they are imported. Standard library only, so that it
can run before they are.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_cache_dir() -> Path:
    """``$SOT_PADDLE_CACHE``, else ``$XDG_CACHE_HOME/sot_paddle``, else ``~/.cache/sot_paddle``.

    In the place of one in a home folder that cannot be written: ``cache`` in `stand_in`.
    """
    if chosen := os.environ.get("SOT_PADDLE_CACHE"):
        return Path(chosen)
    if around := os.environ.get("XDG_CACHE_HOME"):
        return Path(around) / "sot_paddle"
    home = os.path.expanduser("~")
    return Path(home, ".cache", "sot_paddle") if _is_home_writable() else stand_in() / "cache"


def spare_home() -> None:
    """Tell libraries that keep folders in the home folder another place where they cannot."""
    if not _is_home_writable():
        os.environ.setdefault("PPNLP_HOME", str(stand_in() / "paddlenlp"))
        os.environ.setdefault("MPLCONFIGDIR", str(stand_in() / "matplotlib"))


@contextlib.contextmanager
def home_for_imports() -> Iterator[None]:
    """Let ``HOME`` be `stand_in` inside of the block where the home folder cannot be written."""
    if _is_home_writable():
        yield
        return
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(stand_in())
    try:
        yield
    finally:
        del os.environ["HOME"]
        if before is not None:
            os.environ["HOME"] = before


@functools.cache
def stand_in() -> Path:
    """A folder for temporary files of this user alone, the same for all processes.

    Where others have put something in its place, it is one of this process.
    """
    folder = Path(tempfile.gettempdir(), f"sot_paddle-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=stat.S_IRWXU)
    if folder.is_dir() and is_trusted(folder):
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))


def is_trusted(path: Path) -> bool:
    """Whether none but this user and the administrator own a file or folder or may write it.

    A link is not: its target can change.
    """
    status = path.lstat()
    ours = status.st_uid in (os.geteuid(), 0)
    return ours and not stat.S_ISLNK(status.st_mode) and not status.st_mode & _OTHERS_WRITE


def _is_home_writable() -> bool:
    home = os.path.expanduser("~")  # itself where the user has none
    return os.path.isabs(home) and os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)
