"""Files of labelled rows that are read row by row: indexed once, never held in memory.

An index knows where each row begins and ends (16 bytes a row) and the hash of the file; a row is
read again when a batch asks for it. What is no row is refused with file and line while the index is
made, so that a run meets it before its first step.

Shape legend: n rows.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sot_paddle.data.errors import DataError
from sot_paddle.data.tsv import refuse_repeated_header
from sot_paddle.reading import open_file, parse_json, read_text, require_whole_characters

LARGEST_ROW = 1 << 22
"""Bytes of a row at most."""

Row = Mapping[str, str]
"""Column name -> cell."""


@dataclass(frozen=True)
class RowForm:
    """How the rows of a file are written.

    Attributes:
        cells: the text of a row to its cells; None where a row names them itself (JSON lines).
        quoted: whether a row may hold line ends, between quotes.
        encoding: of the text.
    """

    cells: Callable[[str], list[str]] | None
    quoted: bool = False
    encoding: str = "utf-8"


def _comma_cells(text: str) -> list[str]:
    before = csv.field_size_limit(LARGEST_ROW)
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise DataError(f"no comma-separated row ({error})") from None
    finally:
        csv.field_size_limit(before)


def _labelled_cells(text: str) -> list[str]:
    fine, space, words = text.partition(" ")
    coarse, colon, _ = fine.partition(":")
    if not (space and colon):
        raise DataError(f"expected LABEL:detail and a text, found {text[:60]!r}")
    return [coarse, words]


TAB = RowForm(lambda text: text.split("\t"))
COMMA = RowForm(_comma_cells, quoted=True)
LABELLED = RowForm(_labelled_cells, encoding="latin-1")
JSON_LINES = RowForm(None)
FORMS: Mapping[str, RowForm] = {".tsv": TAB, ".csv": COMMA, ".jsonl": JSON_LINES}
"""Ending of a user's own table -> its form."""


class RowFile:
    """The rows of a file, found by their offsets.

    Args:
        path: the file.
        form: of its rows.
        columns: names of the cells; None takes them from the first line (JSON lines name theirs).
        visit: called with (row, where it stands) of every row, in order, while the index is made.

    Attributes:
        path: the file.
        columns: names of the cells, those of the first row of JSON lines.
        fingerprint: hash of the file.

    Raises:
        ValueError: the file cannot be read, holds no row, or something else than rows of the form;
            or ``visit`` refuses one.
    """

    def __init__(
        self,
        path: Path,
        form: RowForm,
        columns: Sequence[str] | None = None,
        visit: Callable[[Row, str], None] = lambda row, where: None,
    ) -> None:
        self.path, self._form = path, form
        self.columns = tuple(columns or ())
        self._starts, self._ends = array("q"), array("q")
        digest = hashlib.sha256()
        with open_file(path) as stream:
            for number, start, content in _records(stream, path, form, digest):
                where = f"{path}, line {number}"
                if not (self.columns or form.cells is None):
                    self._take_header(form.cells(self._text(content, where)), where)
                    continue
                row = self._row(content, where)
                header = () if columns or form.cells is None else self.columns
                refuse_repeated_header(tuple(row.values()), header, where)
                self.columns = self.columns or tuple(row)
                visit(row, where)
                self._starts.append(start)
                self._ends.append(start + len(content))
        if not self._starts:
            raise DataError(f"{path} holds no row; fetch the file again")
        self.fingerprint = digest.hexdigest()

    def _take_header(self, names: list[str], where: str) -> None:
        if len(set(names)) < len(names):
            raise DataError(f"{where}: expected different column names, found {names}")
        self.columns = tuple(names)

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, position: int) -> Row:
        """A row, read from the disk.

        Raises:
            DataError: the file has changed meanwhile.
        """
        start, end = self._starts[position], self._ends[position]
        with open_file(self.path) as stream:
            stream.seek(start)
            content = stream.read(end - start)
        where = f"{self.path}, row {position}"
        if len(content) != end - start:
            raise DataError(f"{where}: the file was cut off while it was used")
        return self._row(content, where)

    def _text(self, content: bytes, where: str) -> str:
        try:
            return content.decode(self._form.encoding)
        except UnicodeDecodeError as error:
            found = f"0x{content[error.start]:02x}"
            raise DataError(f"{where}: expected UTF-8 text, found byte {found}") from None

    def _row(self, content: bytes, where: str) -> Row:
        text = self._text(content, where)
        if self._form.cells is None:
            named = parse_json(text, where).items()
            row = {
                name: str(value) for name, value in named if isinstance(value, str | int | float)
            }
            for name, cell in row.items():
                require_whole_characters(cell, f"{where}, {name!r}")
            return row
        try:
            cells = self._form.cells(text)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if len(cells) != len(self.columns):
            raise DataError(
                f"{where}: expected {len(self.columns)} columns ({', '.join(self.columns)}), found "
                f"{len(cells)} in {text[:60]!r}"
            )
        return dict(zip(self.columns, cells, strict=True))


class FolderRows:
    """One text a file, in a folder for each class; the cells are ``text`` and ``label``.

    Args:
        folder: holds the folders of the classes.
        classes: their names.
        visit: see `RowFile`.

    Attributes:
        fingerprint: hash of the files' names and contents.

    Raises:
        ValueError: a class without a file, or a file that is empty or no text.
    """

    def __init__(
        self, folder: Path, classes: Sequence[str], visit: Callable[[Row, str], None]
    ) -> None:
        digest = hashlib.sha256()
        self._files: list[tuple[str, Path]] = []
        for label in classes:
            paths = sorted((folder / label).glob("*.txt"))
            if not paths:
                raise DataError(f"{folder / label} holds no .txt file; expected one text a file")
            self._files += [(label, path) for path in paths]
        for position, (_, path) in enumerate(self._files):
            row = self.row(position)
            if not row["text"].strip():
                raise DataError(f"{path} is empty; fetch the file again")
            visit(row, str(path))
            digest.update(f"{path.relative_to(folder)}\0{row['text']}\0".encode())
        self.fingerprint = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._files)

    def row(self, position: int) -> Row:
        """A text and the name of its class, read from the disk."""
        label, path = self._files[position]
        return {"text": read_text(path), "label": label}


def _records(
    stream: BinaryIO, path: Path, form: RowForm, digest: hashlib._Hash
) -> Iterator[tuple[int, int, bytes]]:
    """(line number, offset, content without line end) of every record; updates the digest."""
    number = offset = first = blank = size = quotes = 0
    held: list[bytes] = []  # lines of one record
    while line := stream.readline(LARGEST_ROW + 1):
        digest.update(line)
        number += 1
        if not held:
            first, offset = number, stream.tell() - len(line)
        held.append(line)
        size, quotes = size + len(line), quotes + line.count(b'"')
        if size > LARGEST_ROW:
            hint = "; is a quote left open?" if form.quoted else ""
            raise DataError(f"{path}, line {first}: a row of more than {LARGEST_ROW:,} bytes{hint}")
        if form.quoted and quotes % 2:
            continue
        content = b"".join(held).removesuffix(b"\n").removesuffix(b"\r")
        held, size, quotes = [], 0, 0
        if first == 1 and content.startswith(codecs.BOM_UTF8):
            content = content.removeprefix(codecs.BOM_UTF8)
            offset += len(codecs.BOM_UTF8)
        if not content:
            blank = blank or first
            continue
        if blank:
            raise DataError(f"{path}, line {blank}: expected a row, found an empty line")
        yield first, offset, content
    if held:
        raise DataError(f"{path}, line {first}: a quote is left open")
