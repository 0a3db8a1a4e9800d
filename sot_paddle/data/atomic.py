"""Writing a file so that it is there whole or not at all, also after a crash."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

_serial = itertools.count()


def write_atomically(path: str | Path, content: bytes) -> Path:
    """Write ``content`` to a temporary file beside ``path``, sync it, then rename it over.

    Readers see the old file or the new one, never a part; concurrent writers do not mix.

    Args:
        path: destination; its folder must exist.
        content: the whole file.

    Returns:
        ``path`` as a :class:`~pathlib.Path`.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; nothing is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_serial)}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # gone already when all went well
    return path
