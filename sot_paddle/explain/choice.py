"""Which images are drawn (files, a folder of one class, an ImageFolder, or the digits), and which
sentences: those of the command line, then the lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from sot_paddle.data.image_dataset import DIGITS, ImageSource, load_digits
from sot_paddle.data.image_folder import (
    EXTENSIONS,
    OTHER_NAMES,
    FolderSource,
    decode_rgb,
    files_below,
    read_class_folders,
    read_split,
)
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.tsv import decoded_lines

MAX_ROWS = 64
"""Rows of a figure; more would not be looked at."""


@dataclass(frozen=True)
class ChosenImage:
    """One image to explain."""

    name: str
    label: str  # name of the folder it lies in (which may be no class), or of its class
    read: Callable[[], Image.Image]


def choose_images(places: Sequence[str], count: int, transform: EvalTransform) -> list[ChosenImage]:
    """List what is to be drawn, without decoding it.

    Args:
        places: image files; folders of one class (the first ``count`` images of it); folders of
            class folders, or with ``val`` in them (``count`` of each class); or ``digits``.
        transform: gives the size of the digits.

    Returns:
        In the order of ``places``; within a folder in the order of its file names.

    Raises:
        ValueError: nothing there, no images there, or more than 64 of them.
    """
    if count < 1:
        raise ValueError(f"--count must be at least 1, got {count}")
    chosen: list[ChosenImage] = []
    for place in places:
        source = _source(place, transform)
        if isinstance(source, Path):
            read = partial(decode_rgb, source)
            chosen.append(ChosenImage(source.name, source.absolute().parent.name, read))
            continue
        for label, name in enumerate(source.classes):
            for index in map(int, np.flatnonzero(source.labels == label)[:count]):
                read = partial(source.image, index)
                chosen.append(ChosenImage(Path(source.name(index)).name, name, read))
    _require_few(len(chosen), "images")
    return chosen


def _require_few(count: int, what: str) -> None:
    if count > MAX_ROWS:
        raise ValueError(
            f"{count} {what} are asked for, at most {MAX_ROWS} can be drawn: give fewer"
        )


def _source(place: str, transform: EvalTransform) -> ImageSource | Path:
    """The images of a folder or of the digits, or a single file."""
    path = Path(place)
    if place == DIGITS and not path.exists():
        return load_digits(transform.img_size)[1]
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"{path}: there is no such image or folder")
    inner = {entry.name for entry in path.iterdir() if entry.is_dir() and entry.name[0] != "."}
    if inner & {"train", "val", *OTHER_NAMES["val"]}:
        return read_split(path, "val")
    if inner:
        return read_class_folders(path)
    files = files_below(path).images
    if not files:
        raise ValueError(f"{path}: expected images ({' '.join(EXTENSIONS)}), got none")
    return FolderSource(path, (path.absolute().name,), files, np.zeros(len(files), np.int64))


@dataclass(frozen=True)
class ChosenSentence:
    """One sentence or pair to explain, and its class, "" when not known."""

    texts: tuple[str, ...]
    label: str = ""


def choose_sentences(
    texts: Sequence[Sequence[str]], file: str | None, labels: Sequence[str], num_texts: int | None
) -> list[ChosenSentence]:
    """Read what is to be drawn, one sentence or pair at least.

    Args:
        file: UTF-8, a sentence or pair per line with TAB between the columns; a label that is a
            column more than the task has texts stands first. Empty lines are passed over.

    Raises:
        ValueError: the file cannot be read, a line or argument has another number of texts, or
            there are more than 64.
    """
    chosen = [("--text", ChosenSentence(tuple(each))) for each in texts]
    for number, line in enumerate(decoded_lines(Path(file))[0] if file else (), 1):
        columns, label = line.split("\t"), ""
        if columns[0] in labels and len(columns) > (num_texts or 1):
            label = columns.pop(0)
        if line.strip():
            chosen.append((f"{file}:{number}", ChosenSentence(tuple(columns), label)))
    for where, sentence in chosen:
        count = len(sentence.texts)
        if count > 2 or (num_texts is not None and count != num_texts):
            wanted = {1: "one sentence", 2: "a pair of sentences"}.get(num_texts, "one or two")
            raise ValueError(f"{where}: expected {wanted}, got {count} texts")
    _require_few(len(chosen), "sentences")
    return [sentence for _, sentence in chosen]
