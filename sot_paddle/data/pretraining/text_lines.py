"""Lines of text files of any size, one at a time, from any place in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sot_paddle.data.errors import DataError
from sot_paddle.reading import open_file, shown

LONGEST_LINE = 1 << 20
"""Bytes of a line: what is longer is no sentence, but a file without line ends."""


class Place(NamedTuple):
    """Where the next line begins; a list of three numbers in JSON.

    Attributes:
        file: position of its file in the list.
        offset: bytes of that file before it.
        line: lines of that file before it.
    """

    file: int = 0
    offset: int = 0
    line: int = 0


def text_files(names: Sequence[str]) -> list[Path]:
    """The files that are meant: files as they are, of a folder its ``*.txt`` sorted by name.

    Raises:
        DataError: one is not there, or a folder has none.
    """
    found: list[Path] = []
    for name in names:
        place = Path(name)
        inside = sorted(place.glob("*.txt")) if place.is_dir() else [place]
        if not inside:
            raise DataError(f"{place}: no *.txt in this folder")
        for path in inside:
            if not path.is_file():
                raise DataError(f"{path} is missing: give text files, or a folder with *.txt")
        found += inside
    if not found:
        raise DataError("no text file is given")
    return found


def identity_of(files: Sequence[Path]) -> list[list[object]]:
    """Name, size and time of change of files: what a continued preparation must find again."""
    stats = [(path, os.stat(path)) for path in files]
    return [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def lines_from(files: Sequence[Path], place: Place = Place()) -> Iterator[tuple[str, Place]]:  # noqa: B008
    """Lines without white space at their ends or a byte-order mark, each with the place after it.

    Args:
        files: read one after the other.
        place: where to begin.

    Raises:
        ValueError: a file cannot be read, is cut off meanwhile, a line is no UTF-8 or longer than
            `LONGEST_LINE`; names file and line.
    """
    offset, number = place.offset, place.line
    for index in range(place.file, len(files)):
        path = files[index]
        with open_file(path) as stream:
            if offset > os.fstat(stream.fileno()).st_size:
                raise DataError(f"{shown(path)} was cut off while it was read")
            stream.seek(offset)
            while raw := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(raw) > LONGEST_LINE:
                    raise DataError(
                        f"{shown(path)}, line {number}: longer than {LONGEST_LINE:,} bytes; put "
                        "one sentence on a line"
                    )
                offset += len(raw)
                yield _text(raw, path, number), Place(index, offset, number)
        offset = number = 0


def _text(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"{shown(path)}, line {number}: expected UTF-8 text, found byte 0x{byte:02x}"
        ) from None
