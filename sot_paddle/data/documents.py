"""Whole texts with their classes: the published data sets as they are distributed, own tables.

A reader yields where a row stands, and its cells by column. A row that is none is refused with file
and line while the file is read, before a run's first step.

Source: specs.md D.2; the files of IMDB (aclImdb), TREC and Yahoo Answers themselves.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sot_paddle.data.glue import own_task, read_split, read_table, table_task
from sot_paddle.data.glue_tasks import OWN, Task
from sot_paddle.reading import read_text, sha256_of

LARGEST_CELL = 1 << 22  # characters, of a CSV file

Columns = tuple[str, ...]
Row = Mapping[str, str]
"""Column name -> cell."""

Reader = Callable[[Path], Iterator[tuple[str, Row]]]
"""A path to places and rows."""


def tab_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """Cells with a TAB between, quoting off, of a file without a header."""
    for number, row in read_table(path, required=columns, columns=columns):
        yield f"{path}, line {number}", row


def comma_rows(path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    """Cells with a comma between, of a file without a header; quoted ones may hold line ends.

    A row stands in the line that it ends in.
    """
    csv.field_size_limit(LARGEST_CELL)
    text = io.StringIO(read_text(path, encoding="utf-8-sig"), newline="")
    reader = csv.DictReader(text, columns, strict=True)
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise ValueError(
                    f"{where}: expected {len(columns)} columns ({', '.join(columns)}), found "
                    f"{str(list(row.values()))[:60]}"
                )
            yield where, row
    except csv.Error as error:
        where = f"{path}, line {reader.line_num + 1}"
        raise ValueError(f"{where}: no comma-separated row ({error})") from None


def labelled_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """TREC's lines ``LABEL:detail the text`` in Latin-1, as ``label`` and ``text``."""
    lines = read_text(path, encoding="latin-1").rstrip("\r\n").split("\n")
    for number, line in enumerate(lines, 1):
        fine, space, words = line.partition(" ")
        coarse, colon, _ = fine.partition(":")
        if not (space and colon):
            raise ValueError(f"{path}, line {number}: expected LABEL:detail and a text")
        yield f"{path}, line {number}", {"label": coarse, "text": words.removesuffix("\r")}


def folder_rows(folder: Path, labels: Columns) -> Iterator[tuple[str, Row]]:
    """One text a file, in a folder for each class, as ``label`` and ``text``."""
    for label in labels:
        paths = sorted((folder / label).glob("*.txt"))
        if not paths:
            raise ValueError(f"{folder / label} holds no .txt file; expected one text a file")
        for path in paths:
            yield str(path), {"label": label, "text": read_text(path)}


@dataclass(frozen=True)
class TextLayout:
    """A published data set; its development split is the published test split (D.2)."""

    labels: tuple[str, ...]
    splits: Mapping[str, Mapping[str, Reader]]  # ``train``, ``dev`` -> names, tried in this order
    text: tuple[str, ...] = ("text",)  # columns whose cells, joined by a space, make the text
    numbered: bool = True  # whether a label may also be its position


_YAHOO = ("label", "title", "content", "answer")
_POLARITY = ("neg", "pos")
_FOLDERS = partial(folder_rows, labels=_POLARITY)
_TABS = partial(tab_rows, columns=("label", "text"))  # the original's own files, see D.2
_COMMAS = partial(comma_rows, columns=_YAHOO)
LAYOUTS: Mapping[str, TextLayout] = {
    "IMDB": TextLayout(
        _POLARITY,
        {
            "train": {"train": _FOLDERS, "train.csv": _TABS},
            "dev": {"test": _FOLDERS, "test.csv": _TABS},
        },
    ),
    "TREC": TextLayout(
        ("LOC", "NUM", "HUM", "ENTY", "ABBR", "DESC"),
        {
            "train": {"train_5500.label": labelled_rows, "train.csv": _TABS},
            "dev": {"TREC_10.label": labelled_rows, "test.csv": _TABS},
        },
    ),
    "Yahoo": TextLayout(
        tuple(str(number) for number in range(1, 11)),
        {"train": {"train.csv": _COMMAS}, "dev": {"test.csv": _COMMAS}},
        text=_YAHOO[1:],
        numbered=False,
    ),
}


def task_title(name: str) -> str:
    """The title of a published data set, or `OWN`, whatever the letter case.

    Raises:
        ValueError: unknown name.
    """
    key = "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("answers")
    titles = {title.lower(): title for title in (*LAYOUTS, OWN)}
    if key not in titles:
        raise ValueError(f"unknown task {name!r}; expected one of: {', '.join(titles.values())}")
    return titles[key]


@dataclass(frozen=True)
class LabelledRows:
    """The texts of a split with their labels."""

    rows: Sequence[tuple[str, ...]]  # one text each, or two
    labels: Sequence[int] | None  # (n,) class indices, None where they are not read
    fingerprint: str


def read_published(
    title: str, folder: Path, splits: Sequence[str]
) -> tuple[Task, dict[str, LabelledRows]]:
    """Read splits of a published data set, a key of `LAYOUTS`: its description, rows by split.

    Raises:
        ValueError: a split is not there, or a row or a label is none.
    """
    layout = LAYOUTS[title]
    rows_by_split = {}
    for split in splits:
        readers = layout.splits[split]
        present = [name for name in readers if (folder / name).exists()]
        if not present:
            raise ValueError(f"{title} {split}: expected {' or '.join(readers)} in {folder}")
        path = folder / present[0]
        rows_by_split[split] = _collected(path, readers[present[0]](path), layout)
    return table_task(("text",), layout.labels, title=title), rows_by_split


def _collected(path: Path, rows: Iterator[tuple[str, Row]], layout: TextLayout) -> LabelledRows:
    classes = {label: index for index, label in enumerate(layout.labels)}
    if layout.numbered:
        classes |= {str(index): index for index in range(len(layout.labels))}
    texts: list[tuple[str, ...]] = []
    labels: list[int] = []
    digest = hashlib.sha256()
    for where, row in rows:
        text = " ".join(filter(None, (row[column] for column in layout.text)))
        if not text.strip():
            raise ValueError(f"{where}: no text in {', '.join(layout.text)}; leave the row out")
        if row["label"] not in classes:
            expected = ", ".join(list(classes)[:12])
            raise ValueError(f"{where}: expected a label of {expected}, found {row['label']!r}")
        if path.is_dir():
            digest.update(f"{Path(where).relative_to(path)}\0{text}\0".encode())
        texts.append((text,))
        labels.append(classes[row["label"]])
    if not texts:
        raise ValueError(f"{path} holds no row; fetch the file again")
    return LabelledRows(texts, labels, digest.hexdigest() if path.is_dir() else sha256_of(path))


def read_own(folder: Path, splits: Sequence[str]) -> tuple[Task, dict[str, LabelledRows]]:
    """Read splits of a user's own tables: their description, rows by split; see `own_task`.

    Raises:
        ValueError: a table is not there, lacks a column, or has rows or labels that are none.
    """
    task = own_task(folder)
    rows_by_split = {}
    for split in splits:
        examples = read_split(folder, task, split)
        pairs = [(example.text_a, example.text_b) for example in examples]
        texts = pairs if len(task.text) == 2 else [pair[:1] for pair in pairs]
        labels = None if split == "test" else [example.label for example in examples]
        rows_by_split[split] = LabelledRows(texts, labels, sha256_of(folder / f"{split}.tsv"))
    return task, rows_by_split
