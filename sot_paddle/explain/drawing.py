"""What the figures of a trained model show: the images or sentences asked for, each explained."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.glue import decoded_lines
from sot_paddle.data.image_dataset import DIGITS, ImageSource, load_digits
from sot_paddle.data.image_folder import FolderSource, is_bare, read_class_folders, read_split
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.explain import figures
from sot_paddle.explain.image_maps import explain_image
from sot_paddle.explain.word_impact import explain_sentence
from sot_paddle.options import part_of
from sot_paddle.train.model_folder import load_trained, load_trained_text

MAX_ROWS = 64
"""Rows of a figure; more would not be looked at."""


def draw_images(options: argparse.Namespace, place: Path) -> bytes:
    """Return the figure of the images that the options name, for the model of a folder."""
    model, config = load_trained(place, ema=not options.no_ema)
    transform = part_of(config, EvalTransform)
    rows, chosen = [], _few(choose_images(options.images, options.count, transform))
    for source, index in chosen:
        picture, name = source.image(index), Path(source.name(index)).name
        label = source.classes[source.labels[index]]
        try:
            parts = explain_image(model, transform(picture))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        label = label if label in config.classes else ""
        rows.append(figures.ExplainedImage(name, transform.crop(picture), parts, label))
        say(f"{len(rows)} of {len(chosen)}: {name}")
    return figures.image_figure(rows, config.classes)


def choose_images(
    places: Sequence[str], count: int, transform: EvalTransform
) -> list[tuple[ImageSource, int]]:
    """List what is to be drawn, by source and index, without decoding it.

    Args:
        places: image files; folders of class folders, or with ``val`` in them (the first ``count``
            of each class); or ``digits``.
        transform: gives the size of the digits, and how photographs are turned.

    Raises:
        ValueError: nothing there, or no images there.
    """
    chosen = []
    for place in places:
        path = Path(place)
        if place == DIGITS and not path.exists():
            source = load_digits(transform.img_size)[1]
        elif path.is_file():
            folder = path.absolute().parent
            source = FolderSource(path.parent, (folder.name,), (path.name,), np.zeros(1, np.int64))
        else:
            source = read_class_folders(path) if is_bare(path) else read_split(path, "val")
        for label in range(len(source.classes)):
            members = np.flatnonzero(source.labels == label)[:count]
            chosen += [(source, int(index)) for index in members]
    return chosen


def _few(rows: Sequence[Any]) -> Sequence[Any]:
    """The first rows of a figure; says so where there are more."""
    if len(rows) > MAX_ROWS:
        say(f"the first {MAX_ROWS} of {len(rows)} are drawn")
    return rows[:MAX_ROWS]


def draw_words(options: argparse.Namespace, place: Path) -> bytes:
    """Return the figure of the sentences of a file, for the text model of a folder."""
    subject = load_trained_text(place)
    lines = _few([line for line in decoded_lines(Path(options.sentences)) if line.strip()])
    rows, labels = [], []
    for line in lines:
        columns = line.split("\t")
        has_label = len(columns) > (subject.num_texts or 1) and columns[0] in subject.labels
        labels.append(columns.pop(0) if has_label else "")
        rows.append(explain_sentence(subject, columns))
        say(f"{len(rows)} of {len(lines)}: {len(rows[-1].words)} words")
    return figures.sentence_figure(rows, labels, subject.labels)
