"""The visualization command: a trained folder and what it is given, to one PNG."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.atomic import write_atomically
from sot_paddle.command_line import OneLineParser
from sot_paddle.config import near_names
from sot_paddle.distributed import say
from sot_paddle.explain.choice import choose_images, choose_sentences
from sot_paddle.explain.figures import (
    ExplainedImage,
    image_figure,
    is_probing,
    layer_figure,
    layer_scores,
    sentence_figure,
)
from sot_paddle.explain.image_maps import explain_images
from sot_paddle.explain.word_impact import explain_sentence
from sot_paddle.tasks.images import eval_transform
from sot_paddle.train.device import prepare_device
from sot_paddle.train.model_folder import find_model_folder, load_trained, load_trained_text
from sot_paddle.train.saved_model import find_text_folder

DESCRIPTION = """\
Show where ClassT, WordT and their sum look: heat maps over images for a trained image model, the
impact of each word for a trained text model. Writes DIR/images.png or DIR/words.png, and prints the
path. Of a run of probes (tools/train_adapter.py --model probes) it draws what each layer scores,
DIR/layers.png."""
EXAMPLES = """\
examples:
  python tools/visualize.py output/digits digits --out output/seen
  python tools/visualize.py output/train/RUN DATA --count 2 --out output/seen
  python tools/visualize.py output/train/RUN a.jpg b.jpg --target daisy --out output/seen
  python tools/visualize.py OUTPUT --text "The cat sat on the mat." --out output/seen
  python tools/visualize.py OUTPUT --sentences lines.txt --out output/seen
  python tools/visualize.py output/probes/rte output/probes/mrpc --out output/seen
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/visualize.py``; returns its exit status."""
    return parser().run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    place, out = Path(options.model), Path(options.out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file, expected a folder")
    prepare_device(dtype="float32", cpu=options.cpu)
    sentences = bool(options.text or options.sentences)
    if find_model_folder(place) is not None:
        if sentences or not options.images:
            raise ValueError(f"{place} is an image model: name image files, a folder, or digits")
        name, figure = "images.png", _draw_images(options, place)
    elif find_text_folder(place) is not None:
        if options.images or not sentences:
            raise ValueError(f"{place} is a text model: give --text or --sentences, not images")
        name, figure = "words.png", _draw_words(options, place)
    elif is_probing(place):
        runs = [place, *map(Path, options.images)]
        name, figure = "layers.png", layer_figure([layer_scores(run) for run in runs])
    else:
        raise ValueError(
            f"{place} holds no trained model: give the folder that tools/train_image.py or "
            "tools/train_glue.py wrote, or its best"
        )
    print(write_atomically(out / name, figure))


def _draw_images(options: argparse.Namespace, place: Path) -> bytes:
    model, config = load_trained(place, ema=not options.no_ema)
    classes = config.classes or tuple(map(str, range(config.num_classes)))
    target = _target(options.target, classes)
    transform = eval_transform(config)
    chosen = choose_images(options.images, options.count, transform)
    pictures = [image.read() for image in chosen]  # a damaged file ends the command early
    rows = []
    for index, (image, picture) in enumerate(zip(chosen, pictures, strict=True)):
        label = image.label if image.label in classes else ""
        try:
            (parts,) = explain_images(model, transform(picture)[None], target)
        except ValueError as error:
            raise ValueError(f"{image.name}: {error}") from error
        rows.append(ExplainedImage(image.name, transform.crop(picture), parts, label))
        say(f"{index + 1} of {len(chosen)}: {image.name}")
    return image_figure(rows, classes)


def _draw_words(options: argparse.Namespace, place: Path) -> bytes:
    subject = load_trained_text(place, max_length=options.max_seq_length)
    for note in subject.notes:
        say(note)
    target = _target(options.target, subject.labels)
    chosen = choose_sentences(
        options.text or [], options.sentences, subject.labels, subject.num_texts
    )
    rows = []
    for index, sentence in enumerate(chosen):
        rows.append(explain_sentence(subject, sentence.texts, target))
        shown, left_out = len(rows[-1].words), rows[-1].left_out
        rest = f", {left_out} more are not read" if left_out else ""
        say(f"{index + 1} of {len(chosen)}: {shown} words{rest}")
    return sentence_figure(rows, [sentence.label for sentence in chosen], subject.labels)


def _target(name: str | None, classes: Sequence[str]) -> int | None:
    """The class that ``--target`` names, or its number where no class has that name."""
    if name is None:
        return None
    if not classes:
        raise ValueError("--target: this model gives a score and has no classes; leave it out")
    if name in classes:
        return classes.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(classes):
        return int(name)
    raise ValueError(f"--target: no class {name!r}; {near_names(name, classes)}")


def parser() -> OneLineParser:
    """The command line of ``tools/visualize.py``."""
    command_line = OneLineParser("visualize.py", DESCRIPTION, EXAMPLES)
    add = command_line.add_argument
    add("model", metavar="MODEL_FOLDER", help="of train_image, _glue or _text, or of probes")
    add(
        *("images",),
        nargs="*",
        metavar="IMAGES",
        help="image files; a folder of one class; a folder of class folders, or with val in it; "
        "or digits; of probes: further runs",
    )
    add("--out", required=True, metavar="DIR", help="where the figure is written")
    add("--target", metavar="CLASS", help="class to explain [the model's own prediction]")
    add("--count", type=int, default=1, metavar="N", help="images of each class folder [1]")
    add(
        *("--text",),
        nargs="+",
        action="append",
        metavar="TEXT",
        help="a sentence, or the two of a pair; may be repeated",
    )
    add("--sentences", metavar="FILE", help="a line each; columns by TAB, the label first if given")
    add("--max-seq-length", type=int, metavar="N", help="tokens of a row [the training's]")
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    add("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    return command_line
