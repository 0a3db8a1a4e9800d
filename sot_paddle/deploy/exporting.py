"""The export command: a trained folder to files that run without this project's code.

Each format is compared with the model on real inputs of several shapes; the folder is complete and
within the bound, or not there.

Shape legend: B rows of a batch, K classes.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import atomic_directory
from sot_paddle.command_line import OneLineParser
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_paddle.data.image_dataset import load_digits
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.deploy.graph import JSON, PARAMETERS, Runner, load_graph, run_model, save_graph
from sot_paddle.deploy.input_rows import INPUT_HELP, InputOptions, read_asked, read_rows
from sot_paddle.deploy.onnx_file import ONNX, load_onnx, translate
from sot_paddle.deploy.recipe import (
    RECIPE,
    Preparation,
    Recipe,
    TextPreparation,
    TextRecipe,
    is_export,
    preparation_of,
    recipe_json,
)
from sot_paddle.deploy.trained import Trained, open_trained
from sot_paddle.runtime import environment_stamp
from sot_paddle.train import folder_lock
from sot_paddle.train.checkpointing import close_folder
from sot_paddle.train.device import prepare_device

DESCRIPTION = """\
Write a trained model as graph files: model.json and model.pdiparams (paddle.jit.save) and
model.onnx (through paddle2onnx), with open batch and token axes, the tokenizer and export.json
beside them. Each is compared with the trained model on real inputs of several shapes; the largest
difference is printed. A folder that is farther than the bound is not left behind."""
EXAMPLES = """\
examples:
  python tools/export.py output/digits output/digits_export
  python tools/export.py OUTPUT/rte OUTPUT/rte_export --data GLUE/RTE/dev.tsv
  python tools/export.py OUTPUT/rte/best OUTPUT/rte_onnx --formats onnx
"""

FORMATS = {"jit": JSON, "onnx": ONNX}
"""Format -> the file that stands for it."""
BOUND = 1e-4
"""Largest difference of a logit, in units of the largest logit (or of 1, where that is larger).

Both compute in float32 and differ by rounding: by 1e-6 at most in what was measured
(docs/measurements.md). With logits up to 1 it moves a probability by at most 5e-5.
"""
ROWS = 16
"""Rows of the largest batch that is compared."""

Batch = Mapping[str, np.ndarray]


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/export.py``, which writes all or nothing; returns its exit status."""
    parser = OneLineParser("export.py", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL_FOLDER", help="of train_glue.py, _text, _squad or _image")
    add("out", metavar="DIR", help="folder of the export, made by the command")
    add("--formats", default=",".join(FORMATS), metavar="F,F", help="[jit,onnx]")
    add(
        *("--data",),
        nargs="+",
        metavar="INPUT",
        help=f"real inputs for the check: {INPUT_HELP} "
        "[sentences that come with the package; scikit-learn's digits]",
    )
    InputOptions.add_flags(parser)
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    add("--overwrite", action="store_true", help="replace an export at DIR")
    return parser.run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    formats = tuple(dict.fromkeys(options.formats.split(",")))
    if not set(formats) <= set(FORMATS):
        raise ValueError(f"--formats takes {' and '.join(FORMATS)}, got {options.formats!r}")
    out = Path(options.out)
    if out.exists() and not is_export(out):
        raise ValueError(f"{out} exists and is no export: name a new folder")
    if out.exists() and not options.overwrite:
        raise ValueError(f"{out} holds an export: name a new folder, or give --overwrite")
    prepare_device(dtype="float32", cpu=True)
    trained = open_trained(options.model, ema=not options.no_ema)
    for note in trained.notes:
        print(note, file=sys.stderr)
    rows = None
    if options.data:
        wanted = InputOptions(options.format, options.columns)
        if trained.recipe.spans is None:
            rows = [row.value for row in read_rows(options.data, trained.recipe, wanted)]
        else:
            rows = [(query.text, query.context) for query in read_asked(options.data, wanted)]
    out.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock.hold_beside(out):
        checks = export(trained, out, formats=formats, rows=rows)
    for name, check in checks.items():
        print(f"{out / FORMATS[name]}: {check}")


def export(
    trained: Trained,
    out: Path,
    *,
    formats: Sequence[str] = tuple(FORMATS),
    rows: Sequence[Any] | None = None,
) -> dict[str, Difference]:
    """Write an export; it is there complete and within the bound, or not at all.

    Args:
        out: folder of the export; an existing one is replaced.
        rows: real inputs for the check, see `Preparation`; None for what comes with the package.

    Raises:
        ValueError: a format that cannot be made, or one that is farther than the bound from the
            model; nothing is left then.
        OSError: the folder cannot be written.
    """
    recipe = trained.recipe
    prepare = preparation_of(recipe, trained.folder)
    prepared = batches(real_rows(recipe) if rows is None else rows, prepare)
    inputs: list[Batch] = [{name: batch[name] for name in recipe.inputs} for batch in prepared]
    with atomic_directory(out) as folder:
        save_graph(trained.model, inputs[0], folder)
        if "onnx" in formats:
            translate(folder / JSON, folder / PARAMETERS, folder / ONNX, recipe.inputs)
        checks = {}
        for name in formats:
            exported = load_onnx(folder) if name == "onnx" else load_graph(folder, recipe.inputs)
            check = compare(inputs, run_model(trained.model, recipe.inputs), exported)
            if check.size > BOUND:
                raise ValueError(
                    f"the {name} export is not the model: {check}; nothing was written"
                )
            checks[name] = check
        if "jit" not in formats:
            (folder / JSON).unlink()
            (folder / PARAMETERS).unlink()
        if isinstance(recipe.preparation, TextRecipe):
            for name in FAMILIES[recipe.preparation.tokenizer].files:
                if (trained.folder / name).is_file():
                    shutil.copyfile(trained.folder / name, folder / name)
        more = {
            "source": str(trained.folder),
            "bound": BOUND,
            "checks": {name: dataclasses.asdict(check) for name, check in checks.items()},
            "environment": environment_stamp(),
        }
        (folder / RECIPE).write_text(recipe_json(recipe, more), encoding="utf-8")
        close_folder(folder)
    return checks


def real_rows(recipe: Recipe) -> list[Any]:
    """Sentences that come with the package (pairs, but for single-sentence tasks), or digits."""
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        digits = load_digits(max(details.img_size, 8))[1]
        step = len(digits) // ROWS
        return [lambda place=place: digits.image(place * step) for place in range(ROWS)]
    sentences = [text for text in reversed(REAL_SENTENCES) if text.strip()]  # longest first
    if details.num_texts == 1:
        return [(text,) for text in sentences[:ROWS]]
    return list(zip(sentences[:ROWS], sentences[ROWS : 2 * ROWS], strict=True))


def batches(rows: Sequence[Any], prepare: Preparation) -> list[Batch]:
    """Return rows in several shapes; texts of the last two batches in their own length.

    Returns:
        One batch of up to 16 rows as in use, one of a single row, one of up to three rows.
    """
    rows = list(rows[:ROWS])
    tight = prepare
    if isinstance(prepare, TextPreparation):
        rows.sort(key=lambda row: sum(map(len, row)))
        tight = TextPreparation(prepare.tokenizer, "longest")
    return [prepare(rows), tight(rows[:1]), tight(rows[len(rows) // 2 :][:3])]


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far an export is from the model that it was made of."""

    size: float  # largest difference of a logit, in units of `scale`; infinite: not a number
    scale: float  # largest logit of the model, at least 1
    rows: int
    shapes: tuple[tuple[int, ...], ...]  # of the first input of each batch
    same: int

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) for shape in self.shapes)
        return (
            f"largest difference {self.size:.1e} of logits up to {self.scale:.3g} (bound "
            f"{BOUND:g}), same class in {self.same} of {self.rows} rows; inputs {shapes}"
        )


def compare(inputs: Sequence[Batch], model: Runner, export: Runner) -> Difference:
    """Run the model and what was made of it on the same batches.

    Raises:
        ValueError: the model's own logits are not finite, or the export's have another shape.
    """
    scale, largest, rows, same = 1.0, 0.0, 0, 0
    for batch in inputs:
        expected, actual = model(batch).astype(np.float64), export(batch).astype(np.float64)
        if expected.shape != actual.shape:
            raise ValueError(f"the export gives logits {actual.shape}, the model {expected.shape}")
        if not np.isfinite(expected).all():
            raise ValueError(
                "the model's own logits on these inputs are not finite: train it first"
            )
        scale = max(scale, float(np.abs(expected).max()))
        difference = float(np.abs(expected - actual).max())
        largest = max(largest, difference if np.isfinite(difference) else np.inf)
        agree = expected.argmax(axis=-1) == actual.argmax(axis=-1)  # also start and end of a span
        rows, same = rows + len(agree), same + int(agree.reshape(len(agree), -1).all(axis=1).sum())
    shapes = tuple(next(iter(batch.values())).shape for batch in inputs)
    return Difference(largest / scale, scale, rows, shapes, same)
