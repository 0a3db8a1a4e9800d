"""Lines of text files of any size, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sot_paddle.data.errors import DataError


def text_files(names: Sequence[str]) -> list[Path]:
    """The files that are meant: files as they are, of a folder its ``*.txt`` sorted by name.

    Raises:
        DataError: one is not there, or a folder has none.
    """
    files: list[Path] = []
    for path in map(Path, names):
        inside = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not inside:
            raise DataError(f"{path}: no *.txt in this folder")
        files += inside
    for path in files:
        if not path.is_file():
            raise DataError(f"{path} is missing: give text files, or a folder with *.txt")
    return files


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file without white space at their ends or a byte-order mark.

    Raises:
        DataError: a line is no UTF-8; names file and line.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise DataError(f"{path}, line {number}: expected UTF-8 text: {error}") from None
