"""Where a conversion may write."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from sot_paddle.checkpoint import SUFFIXES
from sot_paddle.convert.formats.source import VOCABULARY_FILES, WEIGHT_FILES
from sot_paddle.convert.formats.torch_files import SUFFIXES as TORCH_SUFFIXES

MANIFEST = "manifest.json"
OURS = (*WEIGHT_FILES, *VOCABULARY_FILES, "config.json", MANIFEST)
"""Every file that a written directory can hold; only such a directory is ever replaced."""


def check_destination(
    dst: Path, src: Path, directory: bool, *, reverse: bool, overwrite: bool
) -> None:
    """Refuse a destination that may not be written.

    Args:
        dst: absolute path asked for.
        src: what is being read.
        directory: `dst` is to be a directory.
        reverse: from Paddle to PyTorch.
        overwrite: an existing destination may be replaced.

    Raises:
        ValueError: unknown suffix, missing folder, `dst` is `src`, or it exists.
    """
    allowed = (".safetensors", *TORCH_SUFFIXES) if reverse else SUFFIXES
    if not directory and dst.suffix not in allowed:
        raise ValueError(
            f"{dst}: expected a name that ends in {', '.join(allowed)}, or a directory (a name"
            f" without a suffix), got {dst.suffix!r}"
        )
    check_free(dst, (src, src.parent), OURS, directory=directory, overwrite=overwrite)
    beside = manifest_beside(dst)
    if not directory and not overwrite and os.path.lexists(beside):
        raise ValueError(f"{beside}: exists, and {dst} does not; --overwrite replaces it")


def manifest_beside(dst: Path) -> Path:
    """Path of the manifest of a file."""
    return dst.with_name(f"{dst.name}.{MANIFEST}")


def check_free(
    dst: Path, sources: Iterable[Path], ours: Collection[str], *, directory: bool, overwrite: bool
) -> None:
    """Refuse a place where something would be replaced that may not be.

    Args:
        dst: path asked for.
        sources: what is being read.
        ours: names of files that a folder may hold for it to be replaced.
        directory: `dst` is to be a folder.
        overwrite: what exists may be replaced; an empty folder always may.

    Raises:
        ValueError: missing folder, `dst` is a source, of another kind, not ours, or it exists.
    """
    if not dst.parent.is_dir():
        raise ValueError(f"{dst}: the folder {dst.parent} does not exist; make it first")
    if not dst.exists():
        return
    if any(path.exists() and dst.samefile(path) for path in sources):
        raise ValueError(f"{dst}: is what is being converted; choose another")
    if dst.is_dir() is not directory:
        raise ValueError(f"{dst}: is a {'file' if directory else 'folder'}; choose another")
    content = sorted(path.name for path in dst.iterdir()) if directory else []
    foreign = [name for name in content if name not in ours]
    if foreign:
        raise ValueError(f"{dst}: holds files of its own ({foreign[0]}); choose another")
    if not overwrite and (content or not directory):
        raise ValueError(f"{dst}: exists; --overwrite replaces it")
