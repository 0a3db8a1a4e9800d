"""The prediction command: files, folders or stdin to JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sot_paddle.atomic import atomic_file
from sot_paddle.command_line import OneLineParser
from sot_paddle.deploy.input_rows import INPUT_HELP, STDIN, InputOptions, read_asked, read_rows
from sot_paddle.deploy.predictor import RUNTIMES, Predictor, answers, open_predictor

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
    return _parser().run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    if options.batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {options.batch_size}")
    out = Path(options.out) if options.out else None
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out}: expected a file's name, got a folder")
    predictor = open_predictor(
        options.model,
        runtime=options.runtime,
        ema=not options.no_ema,
        cpu=options.cpu,
        cpu_precision=options.cpu_precision,
    )
    for note in predictor.notes:
        print(note, file=sys.stderr)
    records = _records(predictor, options)
    lines = (json.dumps(each, ensure_ascii=False, allow_nan=False) + "\n" for each in records)
    if out is None:
        for line in lines:  # at once: who reads them may be waiting
            print(line, end="", flush=True)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as handle:
            handle.writelines(line.encode("utf-8") for line in lines)


def _records(predictor: Predictor, options: argparse.Namespace) -> Iterator[dict]:
    places = options.inputs or [STDIN]
    wanted = InputOptions(options.format, options.columns)
    if predictor.recipe.spans is None:
        rows = read_rows(places, predictor.recipe, wanted)
        return predictor.predictions(rows, options.batch_size, logits=options.logits)
    if options.logits:
        raise ValueError("--logits: an answer has none; its candidates have scores")
    return answers(predictor, read_asked(places, wanted), options.batch_size)


def _parser() -> OneLineParser:
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
    return parser
