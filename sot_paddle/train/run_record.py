"""What this tool wrote into an output folder: the list that deleting goes by.

A name is entered before the file appears, so that a kill leaves no file of ours without an entry.
Whatever is not entered is somebody else's and is never removed; names are relative, and no link
is followed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from sot_paddle import reading
from sot_paddle.atomic import DISCARDED, WRITING, remove, write_atomically
from sot_paddle.train.folder_lock import LOCK

RECORD = "written.json"
"""The record's file in an output folder."""

POINTER = "last"
"""Symbolic link to the newest whole checkpoint, for people and other programs."""

_KIND = "files that sot_paddle wrote"
_HALF_DONE = re.compile(rf"({re.escape(WRITING)}|{re.escape(DISCARDED)})(.+)-\d+(\.\d+)?")
_OWN = re.compile(rf"checkpoint-\d+|best|{POINTER}|\w+\.json")
_WAY_OUT = "move what you need out of the folder and delete it, or choose another --output_dir"


def leftovers(root: Path) -> list[Path]:
    """What a kill left half-written or half-removed: of the top level, and in a recorded place.

    Raises:
        ValueError: the record is damaged.
    """
    halves = {path: _HALF_DONE.fullmatch(path.name) for path in sorted(root.glob(".*"))}
    found = [path for path, half in halves.items() if half and _OWN.fullmatch(half[2])]
    return list(dict.fromkeys([*found, *_unfinished(root)]))


def _unfinished(root: Path) -> list[Path]:
    """Files that a kill left half-written in the place of one that the folder's record lists."""
    known = read(root) or frozenset()
    return [
        path
        for path in sorted(root.rglob(f"{WRITING}*"))
        if path.is_file() and _is_unfinished(path.relative_to(root), known)
    ]


def begin(root: Path) -> None:
    """Start a record with nothing in it, unless the folder has one."""
    if read(root) is None:
        _write(root, ())


def note(root: Path, names: Collection[str]) -> None:
    """Enter files that are about to be written; without a record in the folder nothing is done.

    Args:
        root: output folder.
        names: paths relative to it, with slashes.

    Raises:
        ValueError: the record is damaged.
    """
    known = read(root)
    if known is None or known >= set(names):
        return
    there = {name for name in known if os.path.lexists(root / name)}  # the others were pruned
    _write(root, there | set(names))


def read(root: Path) -> frozenset[str] | None:
    """The names in a folder's record, None when it has no record.

    Raises:
        ValueError: the file is no record, or names something outside of the folder.
    """
    path = root / RECORD
    if path.is_symlink():
        raise ValueError(f"{path} is a link: expected the record of a run")
    if not path.exists():
        return None
    try:
        content = reading.read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): {_WAY_OUT}") from error
    names = content.get("files")
    if not isinstance(names, list) or content.get("kind") != _KIND:
        raise ValueError(f"{path} is no record of a run: {_WAY_OUT}")
    for name in names:
        path = PurePosixPath(name if isinstance(name, str) else "/")
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{path} names {name!r}, which is no path below it: {_WAY_OUT}")
    return frozenset(names)


def first_foreign(root: Path, *, apart: Collection[str] = ()) -> str | None:
    """The first entry of a folder that its record does not list, None when there is none.

    Args:
        root: a folder.
        apart: names of the top level that are judged elsewhere.

    Returns:
        Relative path, with a slash at the end when it is a folder.

    Raises:
        ValueError: the record is damaged.
    """
    known = read(root)
    # without a record nothing but a half-written record can be ours
    half_done = _unfinished(root) if known is None else leftovers(root)
    spared = {RECORD, LOCK, *apart, *(path.relative_to(root).as_posix() for path in half_done)}
    return next(_foreign(root, "", known or frozenset(), spared), None)


def remove_written(root: Path) -> None:
    """Remove what a kill left, every file that the record lists, and the folders around them.

    Args:
        root: a folder without a foreign entry; see :func:`first_foreign`.

    Raises:
        ValueError: the record is damaged.
    """
    for path in leftovers(root):
        remove(path)
    known = read(root)
    if known is None:
        return
    known -= {RECORD, LOCK}
    for name in sorted(known):
        if not _passes_link(root, name):
            (root / name).unlink(missing_ok=True)
    for folder in sorted(_folders(known), reverse=True):  # inner ones first
        if (root / folder).is_dir() and not _passes_link(root, f"{folder}/"):
            (root / folder).rmdir()
    _write(root, ())


def _foreign(root: Path, folder: str, known: frozenset[str], apart: set[str]) -> Iterator[str]:
    folders = _folders(known)
    for entry in sorted(os.scandir(root / folder), key=lambda entry: entry.name):
        name = f"{folder}{entry.name}"
        if name in apart:
            continue
        if entry.is_dir(follow_symlinks=False):
            if name in folders:
                yield from _foreign(root, f"{name}/", known, apart)
            else:
                yield f"{name}/"
        elif name not in known or not _is_as_written(entry, name):
            yield name


def _is_as_written(entry: os.DirEntry, name: str) -> bool:
    """A plain file; the one link that this tool makes points to a neighbour."""
    if name == POINTER:
        return entry.is_symlink() and "/" not in os.readlink(entry.path)
    return entry.is_file(follow_symlinks=False)


def _is_unfinished(path: Path, known: Collection[str]) -> bool:
    """Whether a relative path is that of a recorded file, or of the record, half-written."""
    found = _HALF_DONE.fullmatch(path.name)
    if found is None:
        return False
    target = path.with_name(found[2]).as_posix()
    return target == RECORD or target in known


def _folders(names: Collection[str]) -> set[str]:
    parents = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}
    return parents - {"."}


def _passes_link(root: Path, name: str) -> bool:
    """Whether a folder on the way from the root to a name is a link."""
    folders = list(PurePosixPath(f"{name}x" if name.endswith("/") else name).parents)[:-1]
    return any((root / folder).is_symlink() for folder in folders)


def _write(root: Path, names: Iterable[str]) -> None:
    content = {"kind": _KIND, "files": sorted(names)}
    text = json.dumps(content, indent=1) + "\n"
    write_atomically(root / RECORD, text.encode())
