"""The published data sets of whole texts: files, columns and labels as they are distributed.

Source: specs.md D.2; the files of IMDB (aclImdb), TREC and Yahoo Answers themselves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sot_paddle.data.documents.row_files import (
    COMMA,
    FORMS,
    LABELLED,
    TAB,
    FolderRows,
    Row,
    RowFile,
    RowForm,
)
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import Task
from sot_paddle.data.own_table import class_names, required_label, table_task, text_columns

OWN = "own"
"""Task name of a user's own tables."""

Visit = Callable[[Row, str], None]


@dataclass(frozen=True)
class Place:
    """Where a split may lie.

    Attributes:
        name: of the file, or of the folder with a folder for each class.
        form: of the file's rows, None for a folder.
        columns: names of the cells of a file, () for a folder.
    """

    name: str
    form: RowForm | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextLayout:
    """A published data set.

    Attributes:
        title: its name.
        labels: class names in the order of their indices.
        splits: ``train`` and ``dev`` to where each may lie, tried in this order. The development
            split is the published test split (D.2).
        text: columns whose cells make the text, those that are not empty joined by a space.
        numbered: whether a label may be written as its index.
    """

    title: str
    labels: tuple[str, ...]
    splits: Mapping[str, tuple[Place, ...]]
    text: tuple[str, ...] = ("text",)
    numbered: bool = True


def _tables(train: Place, test: Place) -> Mapping[str, tuple[Place, ...]]:
    """As distributed, or as D.2 reads them: label, tab, text, without a header."""
    return {
        "train": (train, Place("train.csv", TAB, _COLUMNS)),
        "dev": (test, Place("test.csv", TAB, _COLUMNS)),
    }


_COLUMNS = ("label", "text")
_YAHOO = ("label", "title", "content", "answer")
LAYOUTS: Mapping[str, TextLayout] = {
    layout.title: layout
    for layout in (
        TextLayout("IMDB", ("neg", "pos"), _tables(Place("train"), Place("test"))),
        TextLayout(
            "TREC",
            ("LOC", "NUM", "HUM", "ENTY", "ABBR", "DESC"),
            _tables(
                Place("train_5500.label", LABELLED, _COLUMNS),
                Place("TREC_10.label", LABELLED, _COLUMNS),
            ),
        ),
        TextLayout(
            "Yahoo",
            tuple(str(number) for number in range(1, 11)),
            {
                "train": (Place("train.csv", COMMA, _YAHOO),),
                "dev": (Place("test.csv", COMMA, _YAHOO),),
            },
            text=_YAHOO[1:],
            numbered=False,
        ),
    )
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
    """The rows of a split with their labels.

    Attributes:
        rows: the cells, read when they are asked for.
        labels: (n,) class indices, None where they are not read.
        texts: columns of each text of a row; the cells of one are joined.
    """

    rows: RowFile | FolderRows
    labels: Sequence[int] | None
    texts: tuple[tuple[str, ...], ...]

    def text(self, position: int) -> tuple[str, ...]:
        """The text of a row, or its two texts."""
        row = self.rows.row(position)
        return tuple(" ".join(filter(None, (row[n] for n in names))) for names in self.texts)


def read_published(title: str, folder: Path, splits: Sequence[str]) -> tuple[Task, dict]:
    """Index splits of a published data set.

    Args:
        title: key of `LAYOUTS`.
        folder: with its files.
        splits: of ``train`` and ``dev``.

    Returns:
        Its description, and `LabelledRows` by split.

    Raises:
        DataError: a split is not there, or a row or a label is none.
    """
    layout = LAYOUTS[title]
    known = {label: index for index, label in enumerate(layout.labels)}
    if layout.numbered:
        known |= {str(index): index for index in range(len(layout.labels))}
    found = {}
    for split in splits:
        labels = array("q")
        rows = _open(layout, folder, split, _collector("label", known, labels, layout.text))
        found[split] = LabelledRows(rows, labels, (layout.text,))
    return table_task(("text",), layout.labels, title=title), found


def _open(layout: TextLayout, folder: Path, split: str, visit: Visit) -> RowFile | FolderRows:
    places = layout.splits[split]
    for place in places:
        path = folder / place.name
        if place.form is None and path.is_dir():
            return FolderRows(path, layout.labels, visit)
        if place.form is not None and path.exists():
            return RowFile(path, place.form, place.columns, visit)
    wanted = " or ".join(place.name + "/" * (place.form is None) for place in places)
    raise DataError(f"{layout.title} {split}: expected {wanted} in {folder}")


def _collector(column: str, known: Mapping[str, int], labels: array, texts: Sequence[str]) -> Visit:
    def visit(row: Row, where: str) -> None:
        if not any(map(str.strip, map(row.__getitem__, texts))):
            raise DataError(f"{where}: no text in {', '.join(texts)}; leave the row out")
        cell = row.get(column)
        if cell not in known:
            expected = ", ".join(list(known)[:12])
            raise DataError(f"{where}: expected a label of {expected} in {column}, found {cell!r}")
        labels.append(known[cell])

    return visit


def read_own(
    folder: Path, splits: Sequence[str], text: Sequence[str], label: str
) -> tuple[Task, dict]:
    """Index splits of a user's own tables, ``train``, ``dev`` and ``test`` with `FORMS`' endings.

    Args:
        folder: with the tables; ``train`` decides the classes.
        splits: of ``train``, ``dev`` and ``test``; labels of ``test`` are not read.
        text: one or two columns with text; () finds them by their usual names.
        label: column of the label.

    Returns:
        The description of the tables, and `LabelledRows` by split.

    Raises:
        DataError: a table is not there, lacks a column, or has rows or labels that are none.
    """
    cells: set[str] = set()

    def note(row: Row, where: str) -> None:
        cells.add(required_label(_cell(row, label, where), where))

    train = _own_rows(folder, "train", note)
    names = class_names(train.path, cells)
    texts = tuple(text) or text_columns(train.path, train.columns)
    known = {name: index for index, name in enumerate(names)}
    found = {}
    for split in splits:
        labels = array("q")
        collect = None if split == "test" else _collector(label, known, labels, texts)

        def visit(row: Row, where: str, collect: Visit | None = collect) -> None:
            for column in texts:
                _cell(row, column, where)
            if collect is not None:
                collect(row, where)

        rows = _own_rows(folder, split, visit)
        columns = tuple((column,) for column in texts)
        found[split] = LabelledRows(rows, labels if collect else None, columns)
    return table_task(texts, names, label=label), found


def _cell(row: Row, column: str, where: str) -> str:
    if column not in row:
        shown = ", ".join(map(repr, row))
        raise DataError(f"{where}: expected the column {column}; found {shown}")
    return row[column]


def _own_rows(folder: Path, split: str, visit: Visit) -> RowFile:
    paths = [folder / f"{split}{ending}" for ending in FORMS]
    there = [path for path in paths if path.exists()]
    if len(there) != 1:
        names = ", ".join(path.name for path in paths)
        held = " and ".join(path.name for path in there) or "none"
        raise DataError(f"own table {split}: expected one of {names} in {folder}, found {held}")
    (path,) = there
    return RowFile(path, FORMS[path.suffix], None, visit)
