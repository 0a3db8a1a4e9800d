"""The visualization command: a trained folder and what it is given, to one PNG."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser
from sot_paddle.data.glue import decoded_lines
from sot_paddle.data.image_dataset import DIGITS, ImageSource, load_digits
from sot_paddle.data.image_folder import FolderSource, is_bare, read_class_folders, read_split
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.distributed import say
from sot_paddle.explain import figures
from sot_paddle.explain.image_maps import explain_image
from sot_paddle.explain.word_impact import explain_sentence
from sot_paddle.options import part_of
from sot_paddle.train.device import prepare_device
from sot_paddle.train.model_folder import find_folder, load_trained, load_trained_text

MAX_ROWS = 64
"""Rows of a figure; more would not be looked at."""

DESCRIPTION = """\
Show where ClassT, WordT and their sum look: heat maps over images for a trained image model, the
impact of each word for a trained text model. Writes DIR/images.png or DIR/words.png, and prints the
path. Of a run of probes (tools/train_adapter.py --model probes) it draws what each layer scores,
DIR/layers.png."""
EXAMPLES = """\
examples:
  python tools/visualize.py output/digits digits --out output/seen
  python tools/visualize.py output/train/RUN DATA --count 2 --out output/seen
  python tools/visualize.py output/train/RUN a.jpg b.jpg --out output/seen
  python tools/visualize.py OUTPUT --sentences lines.txt --out output/seen
  python tools/visualize.py output/probes/rte output/probes/mrpc --out output/seen
"""


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/visualize.py``."""
    options = parser().parse_args(arguments)
    place, out = Path(options.model), Path(options.out)
    if options.count < 1:
        raise ValueError(f"--count must be at least 1, got {options.count}")
    prepare_device(dtype="float32", cpu=options.cpu)
    if find_folder(place, of_images=True) is not None:
        if options.sentences or not options.images:
            raise ValueError(f"{place} is an image model: name image files, a folder, or digits")
        name, figure = "images.png", _draw_images(options, place)
    elif find_folder(place, of_images=False) is not None:
        if options.images or not options.sentences:
            raise ValueError(f"{place} is a text model: give --sentences, not images")
        name, figure = "words.png", _draw_words(options, place)
    else:
        runs = [place, *map(Path, options.images)]
        name, figure = "layers.png", figures.layer_figure(list(map(figures.layer_scores, runs)))
    print(write_atomically(out / name, figure))


def parser() -> CommandParser:
    """The command line of ``tools/visualize.py``."""
    command_line = CommandParser(prog="visualize.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = command_line.add_argument
    add("model", metavar="MODEL_FOLDER", help="of train_image, _glue or _text, or of probes")
    images = "image files; a folder of class folders, or with val in it; or digits; of probes: runs"
    add("images", nargs="*", metavar="IMAGES", help=images)
    add("--out", required=True, metavar="DIR", help="where the figure is written")
    add("--count", type=int, default=1, metavar="N", help="images of each class folder [1]")
    add("--sentences", metavar="FILE", help="a line each; columns by TAB, the label first if given")
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    add("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    return command_line


def _draw_images(options: argparse.Namespace, place: Path) -> bytes:
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


def _draw_words(options: argparse.Namespace, place: Path) -> bytes:
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
