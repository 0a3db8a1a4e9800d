"""A finished folder of pre-training data: what it says of itself, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.journal import Journal
from sot_paddle.reading import (
    MANIFEST,
    crc32_of,
    field_of,
    listed_files,
    read_object,
    sha256_of,
    shown,
    verify,
)

_CONTENT = "pretraining"


def finish(journal: Journal, keep: Sequence[str], content: Mapping[str, Any]) -> None:
    """Remove what only the work needed, and write the manifest that makes a folder readable.

    Args:
        journal: of the work; closed afterwards.
        keep: files that stay.
        content: what a reader must know, JSON-ready; ``form`` is its kind.

    Raises:
        DataError: an earlier call has written the manifest, and a file does not fit it any more.
    """
    journal.close()
    if (journal.folder / MANIFEST).exists():
        _verify_all(journal.folder, keep)
    else:
        files = {
            name: {"size": path.stat().st_size, "crc32": crc32_of(path)}
            for name in keep
            for path in (journal.folder / name,)
        }
        manifest = {"files": files, _CONTENT: dict(content)}
        write_atomically(journal.folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    for path in sorted(journal.folder.iterdir()):
        if path.suffix in (".bin", ".part") and path.name not in keep:
            path.unlink()


def _verify_all(folder: Path, names: Sequence[str]) -> None:
    try:
        for name in names:
            verify(folder / name)
    except ValueError as error:
        advice = f"delete {shown(folder)} and run the same command again"
        raise DataError(f"{error}, or {advice}") from None


def form_of(folder: Path) -> str:
    """The kind of a finished folder, "" for one that is none."""
    if not (folder / MANIFEST).is_file():
        return ""
    content = read_object(folder / MANIFEST).get(_CONTENT)
    return content.get("form", "") if isinstance(content, dict) else ""


def open_prepared(folder: Path, form: str, counts: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    """What a finished folder says of itself, its files compared with the manifest, and a hash.

    Args:
        folder: of the data.
        form: its kind.
        counts: keys that hold a number from 0; ``tokenizer`` holds a text.

    Raises:
        DataError: not finished, of another form, or a file is missing, cut off or changed.
        ValueError: the manifest is damaged.
    """
    if folder.is_file():
        raise DataError(
            f"{shown(folder)} is a file, expected a prepared folder: prepare_pretraining.py makes "
            "one of text, of lines of ids, or of JSON instances (--form records)"
        )
    found = form_of(folder)
    if found != form:
        said = f"holds {found}" if found else "is not finished (no manifest.json of one)"
        raise DataError(
            f"{shown(folder)} {said}, expected prepared {form}: run prepare_pretraining.py"
        )
    path = folder / MANIFEST
    content = field_of(read_object(path), _CONTENT, dict, shown(path))
    field_of(content, "tokenizer", str, shown(path))
    for key in counts:
        if field_of(content, key, int, shown(path)) < 0:
            raise ValueError(f"{shown(path)}: {key!r} is below 0; prepare the folder again")
    for name in listed_files(folder) or ():
        verify(folder / name)
    return content, sha256_of(path)[:32]
