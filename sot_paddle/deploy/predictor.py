"""The prediction command: a trained folder or an export, and rows, to labels, scores or answers.

Shape legend: B rows, or windows of questions, K classes, S tokens of a window.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from sot_paddle.atomic import atomic_file
from sot_paddle.command_line import OneLineParser
from sot_paddle.data.batches import pad_rows
from sot_paddle.data.squad.answers import decode
from sot_paddle.data.squad.questions import Question, span_features
from sot_paddle.deploy.input_rows import (
    INPUT_HELP,
    STDIN,
    InputOptions,
    Row,
    read_asked,
    read_rows,
)
from sot_paddle.deploy.onnx_file import ONNX, load_onnx
from sot_paddle.deploy.recipe import (
    Preparation,
    Recipe,
    is_export,
    preparation_of,
    read_recipe,
)
from sot_paddle.reading import listed_files, verify
from sot_paddle.runtime import quiet_imports

_OF_ANOTHER = {"onnx": ("model.json", "model.pdiparams"), "jit": (ONNX,)}
"""Runtime -> files of an export that it does not need."""
RUNTIMES = ("auto", "onnx", "jit", "model")
_DIGITS = 6
"""Decimals of a probability."""
_SHOWN = 3
"""Candidates of an answer that are told."""

DESCRIPTION = """\
Predict with a training's folder or with an export of tools/export.py: one line of JSON for each
row with the label, its probability and the probabilities by name (a score for regression), or for
each question of a SQuAD file with its answer. An export with ONNX runs in onnxruntime and needs no
Paddle."""
EXAMPLES = """\
examples:
  python tools/predict.py OUTPUT/rte GLUE/RTE/dev.tsv --out predictions.jsonl
  echo "The cat sat on the mat." | python tools/predict.py OUTPUT/cola_export
  python tools/predict.py OUTPUT/squad dev-v2.0.json --out answers.jsonl
  python tools/predict.py output/digits_export pictures/ --batch-size 64
  find . -name "*.png" | python tools/predict.py output/digits -
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/predict.py``; returns its exit status, 0 when every row is predicted."""
    parser = OneLineParser("predict.py", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL_FOLDER", help="a training's folder, or an export")
    add("inputs", nargs="*", metavar="INPUT", help=f"{INPUT_HELP} [-]")
    add("--out", metavar="FILE", help="write there, whole or not at all [stdout]")
    add("--batch-size", type=int, default=32, metavar="N", help="rows computed together [32]")
    add("--runtime", choices=RUNTIMES, default="auto", help="[auto: onnx, else jit, else model]")
    InputOptions.add_flags(parser)
    add("--logits", action="store_true", help="write the logits too")
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    add("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    products = "products of a training's own model: float32, or bf16 (AMX or AVX512-BF16)"
    add("--cpu-precision", choices=("float32", "bf16"), default="float32", help=products)
    return parser.run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    if options.batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {options.batch_size}")
    predictor = open_predictor(
        options.model,
        runtime=options.runtime,
        ema=not options.no_ema,
        cpu=options.cpu,
        cpu_precision=options.cpu_precision,
    )
    for note in predictor.notes:
        print(note, file=sys.stderr)
    places = options.inputs or [STDIN]
    wanted = InputOptions(options.format, options.columns)
    if predictor.recipe.spans is None:
        rows = read_rows(places, predictor.recipe, wanted)
        records = predictor.predictions(rows, options.batch_size, logits=options.logits)
    elif options.logits:
        raise ValueError("--logits: an answer has none; its candidates have scores")
    else:
        records = answers(predictor, read_asked(places, wanted), options.batch_size)
    lines = (json.dumps(each, ensure_ascii=False, allow_nan=False) + "\n" for each in records)
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(options.out) as handle:
            handle.writelines(line.encode("utf-8") for line in lines)
        return
    for line in lines:  # at once: who reads them may be waiting
        print(line, end="", flush=True)


@dataclass(frozen=True)
class Predictor:
    """A model that is ready to predict."""

    recipe: Recipe
    prepare: Preparation
    run: Any  # arrays by input name to logits (B, K); for questions (B, 2, S)
    notes: tuple[str, ...] = ()  # what could not be read and was assumed

    def logits(self, rows: Sequence[Row]) -> np.ndarray:
        """(B, K) float32 of at least one row; inputs of the same rows are the training's."""
        return self.run(self.prepare([row.value for row in rows]))

    def predictions(self, rows: Iterable[Row], batch_size: int, *, logits: bool) -> Iterator[dict]:
        """A JSON-ready record (see `record`) for each row, in order, batch by batch.

        Raises:
            ValueError: a row that cannot be read, or logits that are not finite.
        """
        waiting, number = iter(rows), 0
        while batch := list(islice(waiting, batch_size)):
            for row, values in zip(batch, self.logits(batch), strict=True):
                if not np.isfinite(values).all():
                    raise ValueError(f"row {number}: the model's output is not finite")
                prediction = record(self.recipe, values, logits_too=logits)
                yield {"index": number, **({"image": row.name} if row.name else {}), **prediction}
                number += 1


def record(recipe: Recipe, logits: np.ndarray, *, logits_too: bool) -> dict[str, Any]:
    """What the logits (K,) of one row say.

    Returns:
        ``label``, its ``probability`` and ``probabilities`` by name (the softmax); for regression
        ``score``. With ``logits_too`` also ``logits``, a list.
    """
    fields: dict[str, Any]
    if recipe.labels:
        shares = [round(float(share), _DIGITS) for share in softmax(logits)]
        best = logits.argmax()
        named = dict(zip(recipe.labels, shares, strict=True))
        fields = {"label": recipe.labels[best], "probability": shares[best], "probabilities": named}
    else:
        fields = {"score": float(f"{logits[0]:.9g}")}  # of any size: all digits of float32
    return fields | ({"logits": [float(value) for value in logits]} if logits_too else {})


def open_predictor(
    place: str | Path,
    *,
    runtime: str = "auto",
    ema: bool = True,
    cpu: bool = False,
    cpu_precision: str = "float32",
) -> Predictor:
    """Open what ``tools/export.py`` or a training wrote.

    Args:
        place: an export, or a training's folder.
        runtime: ``"onnx"`` or ``"jit"`` of an export, ``"model"`` of a training's folder;
            ``"auto"`` takes what is there, ONNX before jit. ONNX needs no Paddle.
        ema: of an image training: the moving average; False for the raw weights.
        cpu_precision: factors of the products of linear layers, ``"float32"`` or ``"bf16"``; an
            export has float32.

    Raises:
        ValueError: no such model, a damaged one, another runtime than it has, or a processor
            without products in bfloat16.
    """
    folder = Path(place)
    if not is_export(folder):
        if runtime not in ("auto", "model"):
            raise ValueError(f"{place} is no export: --runtime {runtime} needs tools/export.py")
        return _of_training(folder, ema, cpu, cpu_precision)
    if cpu_precision != "float32":
        raise ValueError(f"{place} is an export, which computes in float32: drop cpu_precision")
    if runtime == "model" or not ema:
        raise ValueError(f"{place} is an export: give the training's folder for its own model")
    if runtime == "auto":
        runtime = "onnx" if (folder / ONNX).is_file() else "jit"
    for name in listed_files(folder) or ():
        if name not in _OF_ANOTHER[runtime]:
            verify(folder / name)
    recipe = read_recipe(folder)
    if runtime == "onnx":
        run = load_onnx(folder)
    else:
        with quiet_imports():
            from sot_paddle.deploy.graph import load_graph
            from sot_paddle.train.device import prepare_device
        prepare_device(dtype="float32", cpu=cpu)
        run = load_graph(folder, recipe.inputs)
    return Predictor(recipe, preparation_of(recipe, folder), run)


def _of_training(folder: Path, ema: bool, cpu: bool, cpu_precision: str) -> Predictor:
    with quiet_imports():
        from sot_paddle.deploy.graph import run_model
        from sot_paddle.deploy.trained import open_trained
        from sot_paddle.train.device import prepare_device
    prepare_device(dtype="float32", cpu=cpu, cpu_precision=cpu_precision)
    trained = open_trained(folder, ema=ema)
    recipe = trained.recipe
    run = run_model(trained.model, recipe.inputs)
    return Predictor(recipe, preparation_of(recipe, trained.folder), run, trained.notes)


def answers(
    predictor: Predictor, questions: Sequence[Question], batch_size: int
) -> Iterator[dict[str, Any]]:
    """A record for each question, in order: its answer, "" for none, and the best candidates.

    Args:
        batch_size: questions taken together, and windows computed together.

    Raises:
        ValueError: a question that leaves no room for its context, or scores that are not finite.
    """
    max_length, spans = predictor.recipe.preparation.max_length, predictor.recipe.spans
    tokenizer = predictor.prepare.tokenizer
    for first in range(0, len(questions), batch_size):
        chunk = questions[first : first + batch_size]
        numbered = [dataclasses.replace(each, id=str(n)) for n, each in enumerate(chunk, first)]
        features = span_features(numbered, tokenizer, max_length=max_length, stride=spans.stride)
        tokens, scores = features.tokens, []
        for start in range(0, len(tokens), batch_size):
            windows = range(start, min(start + batch_size, len(tokens)))
            batch = pad_rows(tokens, windows, max_length=max_length, pad_id=tokenizer.pad_id)
            scores.append(predictor.run(batch))  # (B, 2, S), start and end
        scores = np.concatenate(scores)
        if not np.isfinite(scores).all():
            raise ValueError("the model's output is not finite")
        by_id = decode(numbered, features, scores[:, 0], scores[:, 1], spans.decoding)
        for index, (question, answer) in enumerate(zip(chunk, by_id.values(), strict=True), first):
            best = [dataclasses.asdict(candidate) for candidate in answer.candidates[:_SHOWN]]
            fields = {"answer": answer.text, "null_odds": answer.null_odds, "candidates": best}
            yield {"index": index, "id": question.id, **fields}
