"""What is predicted: rows of a table, lines, images or questions, from files, a folder or stdin."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sot_paddle.config import near_names
from sot_paddle.data.documents import comma_rows, tab_rows
from sot_paddle.data.image_dataset import DIGITS, load_digits
from sot_paddle.data.image_folder import EXTENSIONS, decode_rgb, files_below, report_others
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.squad.questions import Question, read_questions
from sot_paddle.data.tsv import decoded_lines
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
    "folders, digits; questions: the official .json; - reads lines from stdin (texts, or paths of "
    "images)"
)


@dataclass(frozen=True)
class Row:
    """One row to predict."""

    name: str | None  # file of an image, None for texts
    value: tuple[str, ...] | Callable[[], Any]  # one or two texts, or what reads an image


@dataclass(frozen=True)
class InputOptions:
    """How a file of texts is read."""

    format: str | None = None  # of `FORMATS`, None for what the file's name says
    columns: str | None = None  # text columns with commas between; None for those of the task

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """Add ``--format`` and ``--columns`` to a command line."""
        parser.add_argument(
            "--format", choices=FORMATS, help="of the file of texts [by its name; stdin: lines]"
        )
        parser.add_argument("--columns", metavar="A,B", help="text columns by name [the task's]")


def read_rows(places: Sequence[str], recipe: Recipe, options: InputOptions) -> Iterable[Row]:
    """The rows of an input, in its order; files and folders are checked before the first row.

    Args:
        places: see `INPUT_HELP`.

    Returns:
        A list, or for stdin an iterator that reads as it goes.

    Raises:
        ValueError: nothing there, no rows, a row or option that does not fit; names file and line.
    """
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        if options != InputOptions():
            raise ValueError("--format and --columns are for texts, and this is an image model")
        if list(places) == [STDIN]:
            return (_image(Path(line)) for line in _lines(STDIN) if line.strip())
        return [row for place in places for row in _images_of(place, details)]
    if len(places) != 1:
        raise ValueError(f"expected one file of texts, got {len(places)}: {', '.join(places)}")
    (place,) = places
    rows = _text_rows(place, details, options)
    if place == STDIN:
        return rows
    listed = list(rows)
    if not listed:
        raise ValueError(f"{place}: expected at least one row, got none")
    return listed


def read_asked(places: Sequence[str], options: InputOptions) -> list[Question]:
    """The questions of one file in the official form.

    Raises:
        ValueError: another number of files, an option, a file that holds no questions.
    """
    if len(places) != 1 or places[0] == STDIN or options != InputOptions():
        raise ValueError("a model that answers questions takes one file, the official .json")
    return read_questions(places[0], labelled=False)


def _text_rows(place: str, details: TextRecipe, options: InputOptions) -> Iterator[Row]:
    """The rows of a file of texts, all of one text or all of two."""
    count = details.num_texts
    for where, texts in _texts(place, details, options):
        count = count or min(max(len(texts), 1), 2)
        if len(texts) != count or not all(isinstance(text, str) for text in texts):
            wanted = {1: "one text", 2: "two texts"}[count]
            raise ValueError(f"{where}: expected {wanted}, got {texts!r:.80}")
        yield Row(None, tuple(texts))


def _texts(
    place: str, details: TextRecipe, options: InputOptions
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Where each row stands, and its texts.

    A table is TSV as GLUE has it (quoting off) or CSV, with a header; a line of JSON is an object
    with the text columns, a text, or a list of texts; other lines are a text, or the two of a pair
    with a TAB between.
    """
    by_name = "lines" if place == STDIN else _SUFFIXES.get(Path(place).suffix, "lines")
    kind = options.format or by_name
    if kind == "lines" and options.columns:
        raise ValueError(f"--columns: {place} is read as lines; give --format tsv, csv or jsonl")
    if kind in ("tsv", "csv"):
        path = Path("/dev/stdin") if place == STDIN else _file(place)
        for where, cells in (tab_rows if kind == "tsv" else comma_rows)(path):
            yield where, [cells[name] for name in _columns(cells, details, options, where)]
        return
    for number, line in enumerate(_lines(place), 1):
        where = f"{'stdin' if place == STDIN else place}, line {number}"
        if kind == "jsonl":
            row = parse_json(line, where, object)
            if isinstance(row, dict):
                row = [row[name] for name in _columns(row, details, options, where)]
            yield where, row if isinstance(row, list) else [row]
        elif place == STDIN and not line.strip():
            _LOG.warning("%s: an empty line, left out", where)
        else:
            yield where, [line] if details.num_texts == 1 else line.split("\t")


def _lines(place: str) -> Iterable[str]:
    """The lines of a file; those of stdin as they are asked for."""
    if place != STDIN:
        return decoded_lines(_file(place))[0]
    sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
    return (line.rstrip("\r\n") for line in sys.stdin)


def _file(place: str) -> Path:
    path = Path(place)
    if not path.is_file():
        raise ValueError(f"{place}: expected a file of texts, there is none")
    return path


def _columns(
    header: Iterable[str], details: TextRecipe, options: InputOptions, where: str
) -> tuple[str, ...]:
    """Names of the text columns among those of a header."""
    there = list(header)
    if options.columns:
        chosen = tuple(options.columns.split(","))
        for name in chosen:
            if name not in there:
                raise ValueError(f"{where}: no column {name!r}; {near_names(name, there)}")
        return chosen
    choices = [details.columns] if details.columns else []
    choices += [names for names in _KNOWN_COLUMNS if details.num_texts in (None, len(names))]
    for names in choices:
        if set(names) <= set(there):
            return names
    wanted = " or ".join(" and ".join(names) for names in choices)
    raise ValueError(
        f"{where}: expected a header with {wanted}, got {', '.join(there)[:200]}; name the text "
        "columns with --columns"
    )


def _images_of(place: str, details: EvalTransform) -> list[Row]:
    path = Path(place)
    if place == DIGITS and not path.exists():
        source = load_digits(details.img_size)[1]
        return [Row(source.name(n), partial(source.image, n)) for n in range(len(source))]
    if not path.is_dir():
        return [_image(path)]
    files = files_below(path)
    if not files.images:
        raise ValueError(f"{place}: expected images ({' '.join(EXTENSIONS)}), got none")
    report_others(path, files.others, _LOG.warning)
    return [_image(path / name) for name in files.images]


def _image(path: Path) -> Row:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such image or folder")
    return Row(str(path), partial(decode_rgb, path))
