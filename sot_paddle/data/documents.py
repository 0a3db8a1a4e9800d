"""Labelled rows of tables, and the published data sets of whole texts as they are distributed.

A reader yields where a row stands, and its cells by column. A row that is none is refused with file
and line while the file is read, before a run's first step.

Source: specs.md D.2; the files of IMDB (aclImdb), TREC and Yahoo Answers themselves.
"""

from __future__ import annotations

import csv
import hashlib
import io
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import class_names, required_label, table_task, text_columns
from sot_paddle.data.glue_tasks import Task
from sot_paddle.data.tsv import decoded_lines, read_table, refuse_repeated_header
from sot_paddle.reading import parse_json, read_text, sha256_of

LARGEST_CELL = 1 << 22  # characters, of a CSV file

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
    csv.field_size_limit(LARGEST_CELL)
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
        if values:
            yield where, row


def labelled_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """TREC's lines ``LABEL:detail the text`` in Latin-1, as ``label`` and ``text``."""
    lines = read_text(path, encoding="latin-1").rstrip("\r\n").split("\n")
    for number, line in enumerate(lines, 1):
        fine, space, words = line.partition(" ")
        coarse, colon, _ = fine.partition(":")
        if not (space and colon):
            raise DataError(f"{path}, line {number}: expected LABEL:detail and a text")
        yield f"{path}, line {number}", {"label": coarse, "text": words.removesuffix("\r")}


def folder_rows(folder: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """One text a file, in a folder for each class in ``columns``, as ``label`` and ``text``."""
    for label in columns:
        paths = sorted((folder / label).glob("*.txt"))
        if not paths:
            raise DataError(f"{folder / label} holds no .txt file; expected one text a file")
        for path in paths:
            yield str(path), {"label": label, "text": read_text(path)}


FORMS: Mapping[str, Reader] = {".tsv": tab_rows, ".csv": comma_rows, ".jsonl": json_rows}
"""Ending of a user's own table -> its reader."""

OWN = "own"
"""Task name of a user's own tables."""


@dataclass(frozen=True)
class Place:
    """Where a split may lie."""

    name: str  # of the file, or of the folder with a folder for each class
    read: Reader
    columns: Columns  # names of the cells of a file, of the classes of a folder


@dataclass(frozen=True)
class TextLayout:
    """A published data set; its development split is the published test split (D.2)."""

    labels: tuple[str, ...]
    splits: Mapping[str, tuple[Place, ...]]  # ``train``, ``dev`` -> places, tried in this order
    text: tuple[str, ...] = ("text",)  # columns whose cells, joined by a space, make the text
    numbered: bool = True  # whether a label may also be its position


_COLUMNS = ("label", "text")
_YAHOO = ("label", "title", "content", "answer")
_POLARITY = ("neg", "pos")
# as D.2 reads them: label, tab, text, without a header
_TRAIN, _TEST = (Place(f"{name}.csv", tab_rows, _COLUMNS) for name in ("train", "test"))
LAYOUTS: Mapping[str, TextLayout] = {
    "IMDB": TextLayout(
        _POLARITY,
        {
            "train": (Place("train", folder_rows, _POLARITY), _TRAIN),
            "dev": (Place("test", folder_rows, _POLARITY), _TEST),
        },
    ),
    "TREC": TextLayout(
        ("LOC", "NUM", "HUM", "ENTY", "ABBR", "DESC"),
        {
            "train": (Place("train_5500.label", labelled_rows, _COLUMNS), _TRAIN),
            "dev": (Place("TREC_10.label", labelled_rows, _COLUMNS), _TEST),
        },
    ),
    "Yahoo": TextLayout(
        tuple(str(number) for number in range(1, 11)),
        {
            "train": (Place("train.csv", comma_rows, _YAHOO),),
            "dev": (Place("test.csv", comma_rows, _YAHOO),),
        },
        text=_YAHOO[1:],
        numbered=False,
    ),
}


def task_title(name: str) -> str:
    """The title of a published data set, or `OWN`, whatever the letter case.

    Raises:
        DataError: unknown name.
    """
    key = "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("answers")
    titles = {title.lower(): title for title in (*LAYOUTS, OWN)}
    if key not in titles:
        raise DataError(f"unknown task {name!r}; expected one of: {', '.join(titles.values())}")
    return titles[key]


@dataclass(frozen=True)
class LabelledRows:
    """The texts of a split with their labels."""

    rows: Sequence[tuple[str, ...]]
    labels: Sequence[int] | None  # (n,) class indices, None where they are not read
    texts: tuple[Columns, ...]  # columns of each text of a row; the cells of one are joined
    fingerprint: str


def read_published(
    title: str, folder: Path, splits: Sequence[str]
) -> tuple[Task, dict[str, LabelledRows]]:
    """Read splits of a published data set, a key of `LAYOUTS`: its description, rows by split.

    Raises:
        DataError: a split is not there, or a row or a label is none.
    """
    layout = LAYOUTS[title]
    classes = {label: index for index, label in enumerate(layout.labels)}
    if layout.numbered:
        classes |= {str(index): index for index in range(len(layout.labels))}
    rows_by_split = {}
    for split in splits:
        places = [place for place in layout.splits[split] if (folder / place.name).exists()]
        if not places:
            wanted = " or ".join(place.name for place in layout.splits[split])
            raise DataError(f"{title} {split}: expected {wanted} in {folder}")
        path = folder / places[0].name
        rows = places[0].read(path, places[0].columns)
        rows_by_split[split] = _collected(path, rows, (layout.text,), "label", classes)
    return table_task(("text",), layout.labels, title=title), rows_by_split


def read_own(
    folder: Path, splits: Sequence[str], text: Sequence[str], label: str
) -> tuple[Task, dict[str, LabelledRows]]:
    """Read splits of a user's own tables, ``train``, ``dev`` and ``test`` with `FORMS`' endings.

    Returns their description and their rows by split. ``train`` decides the classes; labels of
    ``test`` are not read.

    Args:
        text: one or two columns with text; () finds them by their usual names.

    Raises:
        DataError: a table is not there, lacks a column, or has rows or labels that are none.
    """
    cells: set[str] = set()
    columns: Columns = ()
    path = _own_table(folder, "train")
    for where, row in FORMS[path.suffix](path, ()):
        columns = columns or tuple(row)
        cells.add(required_label(_cell(row, label, where), where))
    names = class_names(path, cells)
    texts = tuple(text) or text_columns(path, columns)
    classes = {name: index for index, name in enumerate(names)}
    single = tuple((column,) for column in texts)
    rows_by_split = {}
    for split in splits:
        path = _own_table(folder, split)
        rows = FORMS[path.suffix](path, ())
        labelled = None if split == "test" else classes
        rows_by_split[split] = _collected(path, rows, single, label, labelled)
    return table_task(texts, names, label=label), rows_by_split


def _own_table(folder: Path, split: str) -> Path:
    paths = [folder / f"{split}{ending}" for ending in FORMS]
    there = [path for path in paths if path.exists()]
    if len(there) != 1:
        names = ", ".join(path.name for path in paths)
        existing = " and ".join(path.name for path in there) or "none"
        raise DataError(f"own table {split}: expected one of {names} in {folder}, found {existing}")
    return there[0]


def _collected(
    path: Path,
    rows: Iterator[tuple[str, Row]],
    texts: tuple[Columns, ...],
    label: str,
    classes: Mapping[str, int] | None,
) -> LabelledRows:
    """The texts and labels of rows; ``classes``: the class of a label, None reads no labels."""
    collected: list[tuple[str, ...]] = []
    labels = array("q")
    digest = hashlib.sha256()
    for where, row in rows:
        cells = [[_cell(row, column, where) for column in columns] for columns in texts]
        collected.append(tuple(" ".join(filter(None, parts)) for parts in cells))
        if path.is_dir():
            digest.update(f"{Path(where).relative_to(path)}\0{row['text']}\0".encode())
        if classes is None:
            continue
        if not any(text.strip() for text in collected[-1]):
            names = ", ".join(column for columns in texts for column in columns)
            raise DataError(f"{where}: no text in {names}; leave the row out")
        if row.get(label) not in classes:
            expected = ", ".join(list(classes)[:12])
            raise DataError(
                f"{where}: expected a label of {expected} in {label}, found {row.get(label)!r}"
            )
        labels.append(classes[row[label]])
    if not collected:
        raise DataError(f"{path} holds no row; fetch the file again")
    fingerprint = digest.hexdigest() if path.is_dir() else sha256_of(path)
    return LabelledRows(collected, None if classes is None else labels, texts, fingerprint)


def _cell(row: Row, column: str, where: str) -> str:
    if column not in row:
        raise DataError(f"{where}: expected the column {column}; found {', '.join(map(repr, row))}")
    return row[column]
