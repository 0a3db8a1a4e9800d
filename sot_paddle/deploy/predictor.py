"""The prediction command: a trained folder or an export, and texts or images, to labels or scores.

Shape legend: B rows, K classes.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from sot_paddle.cli import CommandParser
from sot_paddle.data import image_folder
from sot_paddle.data.glue import decoded_lines
from sot_paddle.data.image_dataset import DIGITS, load_digits
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy.onnx_file import load_onnx
from sot_paddle.deploy.recipe import RECIPE, Preparation, Recipe, preparation_of, read_recipe
from sot_paddle.reading import MANIFEST, listed_files, verify
from sot_paddle.runtime import quiet_imports

_LOG = logging.getLogger(__name__)
_OF_PADDLE = ("model.json", "model.pdiparams")
"""Files of an export that predictions do not need."""
STDIN = "-"
_TABLES = (".tsv", ".csv", ".json", ".jsonl")

DESCRIPTION = """\
Predict with a training's folder or with an export of tools/export.py: one line of JSON for each
row with the label, its probability and the probabilities by name (a score for regression). An
export runs in onnxruntime and needs no Paddle."""
EXAMPLES = """\
examples:
  tail -n +2 GLUE/RTE/dev.tsv | cut -f 2,3 | python tools/predict.py OUTPUT/rte
  echo "The cat sat on the mat." | python tools/predict.py OUTPUT/cola_export
  python tools/predict.py output/digits_export pictures/ --batch-size 64 > predictions.jsonl
  find . -name "*.png" | python tools/predict.py output/digits -
"""


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/predict.py``."""
    parser = CommandParser(prog="predict.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL_FOLDER", help="a training's folder, or an export")
    add(
        *("inputs",),
        nargs="*",
        metavar="INPUT",
        help="texts: one file, a text per line, the two of a pair with a TAB between; images: "
        "files, folders, digits; - reads lines from stdin (texts, or paths of images) [-]",
    )
    add("--batch-size", type=int, default=32, metavar="N", help="rows computed together [32]")
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    add("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    options = parser.parse_args(arguments)
    if options.batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {options.batch_size}")
    predictor = open_predictor(options.model, ema=not options.no_ema, cpu=options.cpu)
    rows = read_rows(options.inputs or [STDIN], predictor.recipe)
    for prediction in predictor.predictions(rows, options.batch_size):
        # at once: who reads them may be waiting
        print(json.dumps(prediction, ensure_ascii=False, allow_nan=False), flush=True)


@dataclass(frozen=True)
class Predictor:
    """A model that is ready to predict, wherever it came from."""

    recipe: Recipe
    prepare: Preparation
    run: Callable[[Mapping[str, np.ndarray]], np.ndarray]  # inputs by name to logits (B, K)

    def logits(self, rows: Sequence[Row]) -> np.ndarray:
        """(B, K) float32 of at least one row; inputs of the same rows are the training's."""
        return self.run(self.prepare([row.value for row in rows]))

    def predictions(self, rows: Iterable[Row], batch_size: int) -> Iterator[dict[str, Any]]:
        """A JSON-ready record (see `record`) for each row, in order, batch by batch.

        Raises:
            ValueError: a row that cannot be read, or logits that are not finite.
        """
        waiting, number = iter(rows), 0
        while batch := list(islice(waiting, batch_size)):
            for row, values in zip(batch, self.logits(batch), strict=True):
                if not np.isfinite(values).all():
                    raise ValueError(f"row {number}: the model's output is not finite")
                named = {"image": row.name} if row.name else {}
                yield {"index": number, **named, **record(self.recipe, values)}
                number += 1


def record(recipe: Recipe, logits: np.ndarray) -> dict[str, Any]:
    """What the logits (K,) of one row say.

    Returns:
        ``label``, its ``probability`` and ``probabilities`` by name (the softmax); for regression
        ``score``.
    """
    if not recipe.labels:
        return {"score": float(f"{logits[0]:.9g}")}  # of any size: all digits of float32
    shares = [round(float(share), 6) for share in softmax(logits)]
    best = logits.argmax()
    named = dict(zip(recipe.labels, shares, strict=True))
    return {"label": recipe.labels[best], "probability": shares[best], "probabilities": named}


def open_predictor(place: str | Path, *, ema: bool = True, cpu: bool = False) -> Predictor:
    """Open what ``tools/export.py`` or a training wrote.

    Args:
        place: an export, which onnxruntime computes without Paddle, or a training's folder.
        ema: of an image training: the moving average; False for the raw weights.

    Raises:
        ValueError: no such model, or a damaged one.
    """
    folder = Path(place)
    if (folder / RECIPE).is_file():
        if not ema:
            raise ValueError(f"{place} is an export, with weights of its own: drop --no-ema")
        for name in listed_files(folder / MANIFEST):
            if name not in _OF_PADDLE:
                verify(folder / name)
        recipe = read_recipe(folder)
        return Predictor(recipe, preparation_of(recipe, folder), load_onnx(folder))
    with quiet_imports():
        from sot_paddle.deploy.graph import run_model
        from sot_paddle.deploy.trained import open_trained
        from sot_paddle.train.device import prepare_device
    prepare_device(dtype="float32", cpu=cpu)
    trained = open_trained(folder, ema=ema)
    recipe, run = trained.recipe, run_model(trained.model, trained.recipe.inputs)
    return Predictor(recipe, preparation_of(recipe, trained.folder), run)


@dataclass(frozen=True)
class Row:
    """One row to predict."""

    name: str | None  # file of an image, None for texts
    value: tuple[str, ...] | Callable[[], Any]  # one or two texts, or what reads an image


def read_rows(places: Sequence[str], recipe: Recipe) -> Iterable[Row]:
    """The rows of an input, in its order; files and folders are checked before the first row.

    Args:
        places: one file of texts; images, folders of them or ``digits``; or ``-``, stdin.

    Returns:
        A list, or for stdin an iterator that reads as it goes.

    Raises:
        ValueError: nothing there, no rows, a row that does not fit; names file and line.
    """
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        if list(places) == [STDIN]:
            return (_image(Path(line)) for _, line in _lines(STDIN))
        return [row for place in places for row in _images_of(place, details)]
    if len(places) != 1:
        raise ValueError(f"expected one file of texts, got {len(places)}: {', '.join(places)}")
    rows = _text_rows(places[0], details.num_texts)
    return rows if places[0] == STDIN else list(rows)


def _text_rows(place: str, num_texts: int | None) -> Iterator[Row]:
    """The rows of a file of texts, all of one text or all of two, as the task or its first line."""
    count = num_texts
    for where, line in _lines(place):
        texts = (line,) if num_texts == 1 else tuple(line.split("\t"))
        count = count or min(len(texts), 2)
        if len(texts) != count:
            wanted = {1: "one text", 2: "two texts with a TAB between"}[count]
            raise ValueError(f"{where}: expected {wanted}, got {texts!r:.80}")
        yield Row(None, texts)


def _lines(place: str) -> Iterator[tuple[str, str]]:
    """Where each line stands, and it; those of stdin as they are asked for, without empty ones.

    Raises:
        ValueError: no such file, or a table, whose header would be taken for a text.
    """
    if place == STDIN:
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
        lines: Iterable[str] = (line.rstrip("\r\n") for line in sys.stdin)
    elif not Path(place).is_file():
        raise ValueError(f"{place}: expected a file of texts, there is none")
    elif Path(place).suffix in _TABLES:
        raise ValueError(
            f"{place}: expected a text per line, got a table by its name: hand its columns of "
            f"text over by their numbers: tail -n +2 {place} | cut -f NUMBERS | python "
            "tools/predict.py MODEL"
        )
    else:
        lines = decoded_lines(Path(place))
    for number, line in enumerate(lines, 1):
        where = f"{'stdin' if place == STDIN else place}, line {number}"
        if line.strip():
            yield where, line
        else:
            _LOG.warning("%s: an empty line, left out", where)


def _images_of(place: str, details: EvalTransform) -> list[Row]:
    path = Path(place)
    if place == DIGITS and not path.exists():
        source = load_digits(details.img_size)[1]
        return [Row(source.name(n), partial(source.image, n)) for n in range(len(source))]
    if not path.is_dir():
        return [_image(path)]
    files = image_folder.files_below(path)
    images = list(filter(image_folder.is_image, files))
    if not images:
        raise ValueError(
            f"{place}: expected images ({' '.join(image_folder.EXTENSIONS)}), got none"
        )
    image_folder.report_others(path, files)
    return [_image(path / name) for name in images]


def _image(path: Path) -> Row:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such image or folder")
    return Row(str(path), partial(image_folder.decode_rgb, path))
