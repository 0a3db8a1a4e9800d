"""Readers of labelled rows: each yields where a row stands, and its cells by column.

A row that is none is refused with file and line while the file is read, before a run's first step.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sot_paddle.data.errors import DataError
from sot_paddle.data.tsv import decoded_lines, read_table, refuse_repeated_header
from sot_paddle.reading import parse_json, read_text, require_whole_characters

LARGEST_ROW = 1 << 22
"""Characters of a cell of a CSV file at most."""

Columns = tuple[str, ...]
Row = Mapping[str, str]
"""Column name -> cell."""

Reader = Callable[[Path, Columns], Iterator[tuple[str, Row]]]
"""A path, and the names of the cells (() for those of the first line), to places and rows."""


def tab_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """Cells with a TAB between, quoting off."""
    table = read_table(path, required=columns, columns=columns or None)
    for number, cells in table.rows:
        yield f"{path}, line {number}", dict(zip(table.columns, cells, strict=True))


def comma_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """Cells with a comma between; one may hold line ends, between quotes."""
    csv.field_size_limit(LARGEST_ROW)
    reader = csv.reader(io.StringIO(read_text(path, encoding="utf-8-sig"), newline=""), strict=True)
    names, line = columns, 1
    try:
        for cells in reader:
            where, line = f"{path}, line {line}", reader.line_num + 1
            if not cells:
                continue
            if not names:
                names = tuple(cells)
                if len(set(names)) < len(names):
                    raise DataError(f"{where}: expected different column names, found {cells}")
                continue
            if len(cells) != len(names):
                raise DataError(
                    f"{where}: expected {len(names)} columns ({', '.join(names)}), found "
                    f"{len(cells)} in {','.join(cells)[:60]!r}"
                )
            refuse_repeated_header(cells, () if columns else names, where)
            yield where, dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: no comma-separated row ({error})") from None


def json_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """An object a line, which names its cells."""
    for number, line in enumerate(decoded_lines(path)[0], 1):
        where = f"{path}, line {number}"
        values = parse_json(line, where) if line.strip() else {}
        row = {name: str(v) for name, v in values.items() if isinstance(v, str | int | float)}
        for name, cell in row.items():
            require_whole_characters(cell, f"{where}, {name!r}")
        if values:
            yield where, row


def labelled_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """TREC's lines ``LABEL:detail the text`` in Latin-1, as ``label`` and ``text``."""
    for number, line in enumerate(
        read_text(path, encoding="latin-1").rstrip("\r\n").split("\n"), 1
    ):
        fine, space, words = line.partition(" ")
        coarse, colon, _ = fine.partition(":")
        if not (space and colon):
            raise DataError(f"{path}, line {number}: expected LABEL:detail and a text")
        yield f"{path}, line {number}", {"label": coarse, "text": words.removesuffix("\r")}


def folder_rows(folder: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """One text a file, in a folder for each class, as ``label`` and ``text``.

    Args:
        folder: holds the folders of the classes.
        columns: names of the classes.
    """
    for label in columns:
        paths = sorted((folder / label).glob("*.txt"))
        if not paths:
            raise DataError(f"{folder / label} holds no .txt file; expected one text a file")
        for path in paths:
            yield str(path), {"label": label, "text": read_text(path)}


FORMS: Mapping[str, Reader] = {".tsv": tab_rows, ".csv": comma_rows, ".jsonl": json_rows}
"""Ending of a user's own table -> its reader."""
