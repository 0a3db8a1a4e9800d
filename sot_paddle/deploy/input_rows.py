"""What is predicted: rows of a table, lines, or images, from files, a folder or stdin."""

from __future__ import annotations

import argparse
import csv
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sot_paddle.config import near_names
from sot_paddle.data.documents.row_files import LARGEST_ROW
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_digits import DIGITS, load_digits
from sot_paddle.data.image_folder import EXTENSIONS, decode_rgb, files_below, report_others
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.tsv import decoded_lines, refuse_repeated_header
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from sot_paddle.reading import parse_json

_LOG = logging.getLogger(__name__)
STDIN = "-"
FORMATS = ("tsv", "csv", "jsonl", "lines")
_SUFFIXES = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_KNOWN_COLUMNS = (("sentence1", "sentence2"), ("sentence",), ("text_a", "text_b"), ("text",))
"""Names of text columns that are looked for where the task does not say."""
INPUT_HELP = (
    "texts: one file (.tsv and .csv with a header, .jsonl, else a text per line); images: files, "
    "folders, digits; - reads lines from stdin (texts, or paths of images)"
)


@dataclass(frozen=True)
class Row:
    """One row to predict.

    Attributes:
        name: file of an image, None for texts.
        value: one or two texts, or a function that reads an image.
    """

    name: str | None
    value: tuple[str, ...] | Callable[[], Any]


@dataclass(frozen=True)
class InputOptions:
    """How a file of texts is read.

    Attributes:
        format: of `FORMATS`, None for what the file's name says.
        columns: names of the text columns with commas between, or their numbers from 1 for a
            table without header; None for those of the task.
    """

    format: str | None = None
    columns: str | None = None

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add ``--format`` and ``--columns`` to a command line."""
        parser.add_argument(
            "--format", choices=FORMATS, help="of the file of texts [by its name; stdin: lines]"
        )
        parser.add_argument(
            "--columns",
            metavar="A,B",
            help="text columns by name, or by number from 1 in a table without header [the task's]",
        )


def read_rows(places: Sequence[str], recipe: Recipe, options: InputOptions) -> Iterable[Row]:
    """The rows of an input, in its order; files and folders are checked before the first row.

    Args:
        places: see `INPUT_HELP`.
        recipe: of the model.
        options: of the command line.

    Returns:
        A list, or for stdin an iterator that reads as it goes.

    Raises:
        DataError: nothing there, no rows, a row or option that does not fit; names file and line.
    """
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        if options != InputOptions():
            raise DataError("--format and --columns are for texts, and this is an image model")
        return _image_rows(places, details)
    if len(places) != 1:
        raise DataError(f"expected one file of texts, got {len(places)}: {', '.join(places)}")
    return _text_rows(places[0], details, options)


def _text_rows(place: str, details: TextRecipe, options: InputOptions) -> Iterable[Row]:
    path = Path(place)
    kind = options.format or ("lines" if place == STDIN else _SUFFIXES.get(path.suffix, "lines"))
    if kind == "lines" and options.columns:
        raise DataError(f"--columns: {place} is read as lines; give --format tsv, csv or jsonl")
    reader = {"lines": _from_lines, "jsonl": _from_json}.get(kind, partial(_from_table, kind))
    where = "stdin" if place == STDIN else place
    rows = _of_one_kind(reader(lines_of(place, "texts"), where, details, options))
    if place == STDIN:
        return rows
    read = list(rows)
    if not read:
        raise DataError(f"{place}: expected at least one row, got none")
    return read


def lines_of(place: str, what: str) -> Iterable[str]:
    """The lines of a file of texts or of questions; those of stdin as they are asked for.

    Raises:
        DataError: there is no such file, or it is not UTF-8.
    """
    path = Path(place)
    if place == STDIN:
        return _stdin_lines()
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise DataError(f"{place}: expected a file of {what}, got {found}")
    return decoded_lines(path)[0]


def _of_one_kind(rows: Iterable[Row]) -> Iterator[Row]:
    """The same rows, all of one text or all of two."""
    first = None
    for number, row in enumerate(rows, 1):
        first = first or len(row.value)
        if len(row.value) != first:
            raise DataError(
                f"row {number}: expected {first} text(s) as in the first row, got {len(row.value)}"
            )
        yield row


def _stdin_lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError(f"stdin, line {number}: expected UTF-8 text") from None


def _row(texts: Sequence[Any], details: TextRecipe, where: str) -> Row:
    wanted = {1: "one text", 2: "two texts"}.get(details.num_texts, "one or two texts")
    if not 1 <= len(texts) <= 2 or details.num_texts not in (None, len(texts)):
        raise DataError(f"{where}: expected {wanted}, got {len(texts)}")
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{where}: expected text, got {text!r}")
    return Row(None, tuple(texts))


def _from_lines(
    lines: Iterable[str], place: str, details: TextRecipe, _: InputOptions
) -> Iterator[Row]:
    """A text per line, or the two of a pair with a TAB between."""
    for number, line in enumerate(lines, 1):
        texts = (line,) if details.num_texts == 1 else line.split("\t")
        yield _row(texts, details, f"{place}, line {number}")


def _from_json(
    lines: Iterable[str], place: str, details: TextRecipe, options: InputOptions
) -> Iterator[Row]:
    """Objects with the text columns, texts, or lists of texts."""
    columns: tuple[str, ...] | None = None
    for number, line in enumerate(lines, 1):
        where = f"{place}, line {number}"
        try:
            value = parse_json(line, where, object, strict=True)
        except ValueError as error:
            raise DataError(str(error)) from None
        if isinstance(value, dict):
            columns = columns or _columns(tuple(value), details, options, where)
            missing = [name for name in columns if name not in value]
            if missing:
                raise DataError(f"{where}: expected the key {missing[0]!r}, got {list(value)}")
            value = [value[name] for name in columns]
        yield _row(value if isinstance(value, list) else [value], details, where)


def _from_table(
    kind: str, lines: Iterable[str], place: str, details: TextRecipe, options: InputOptions
) -> Iterator[Row]:
    """TSV as GLUE has it (quoting off), or CSV; with a header unless columns are numbers."""
    if kind == "csv":
        cells = _csv_cells(lines, place)
    else:
        cells = ((number, line.split("\t")) for number, line in enumerate(lines, 1))
    numbers = _numbers(options.columns)
    header: list[str] = []
    width = None
    if numbers is None:
        number, header = next(cells, (1, []))
        chosen = _columns(tuple(header), details, options, f"{place}, line {number}")
        numbers, width = [header.index(name) for name in chosen], len(header)
    for number, row in cells:
        where = f"{place}, line {number}"
        if len(row) <= max(numbers) or (width is not None and len(row) != width):
            raise DataError(
                f"{where}: expected {width or max(numbers) + 1} columns, got {len(row)}"
            )
        refuse_repeated_header(row, header, where)
        yield _row([row[position] for position in numbers], details, where)


def _csv_cells(lines: Iterable[str], place: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LARGEST_ROW)
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise DataError(f"{place}, line {reader.line_num}: expected CSV ({error})") from None


def _numbers(columns: str | None) -> list[int] | None:
    """Positions from 0 where the columns are given by number."""
    parts = (columns or "").split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    if "0" in parts:
        raise DataError("--columns: columns are counted from 1, got 0")
    return [int(part) - 1 for part in parts]


def _columns(
    found: tuple[str, ...], details: TextRecipe, options: InputOptions, where: str
) -> tuple[str, ...]:
    """Names of the text columns among those of a header."""
    if options.columns:
        chosen = tuple(options.columns.split(","))
        for name in chosen:
            if name not in found:
                raise DataError(f"{where}: no column {name!r}; {near_names(name, found)}")
        return chosen
    known = [details.columns] if details.columns else []
    known += [names for names in _KNOWN_COLUMNS if details.num_texts in (None, len(names))]
    for names in known:
        if set(names) <= set(found):
            return names
    wanted = " or ".join(" and ".join(names) for names in known)
    raise DataError(
        f"{where}: expected a header with {wanted}, got {', '.join(found)[:200]}; name the text "
        "columns with --columns"
    )


def _image_rows(places: Sequence[str], details: EvalTransform) -> Iterable[Row]:
    if list(places) == [STDIN]:
        return (_image(Path(line), details) for line in _stdin_lines() if line.strip())
    return [row for place in places for row in _images_of(place, details)]


def _images_of(place: str, details: EvalTransform) -> list[Row]:
    path = Path(place)
    if place == DIGITS and not path.exists():
        source = load_digits(details.img_size)[1]
        return [Row(source.name(n), partial(source.image, n)) for n in range(len(source))]
    if path.is_file():
        return [_image(path, details)]
    if not path.is_dir():
        raise DataError(f"{place}: there is no such image or folder")
    found = files_below(path)
    if not found.images:
        raise DataError(f"{place}: expected images ({' '.join(EXTENSIONS)}), got none")
    report_others(path, found.others, _LOG.warning)
    return [_image(path / name, details) for name in found.images]


def _image(path: Path, details: EvalTransform) -> Row:
    if not path.is_file():
        raise DataError(f"{path}: there is no such image")
    return Row(str(path), partial(decode_rgb, path, exif_orientation=details.exif_orientation))
