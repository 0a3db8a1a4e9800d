"""The export command: a trained folder to files that run without this project's code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.command_line import OneLineParser
from sot_paddle.deploy.exporting import FORMATS, check_destination, export
from sot_paddle.deploy.input_rows import INPUT_HELP, InputOptions, read_asked, read_rows
from sot_paddle.deploy.trained import open_trained
from sot_paddle.train import folder_lock
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


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/export.py``, which writes all or nothing; returns its exit status."""
    return _parser().run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    formats = tuple(dict.fromkeys(options.formats.split(",")))
    if not set(formats) <= set(FORMATS):
        raise ValueError(f"--formats takes {' and '.join(FORMATS)}, got {options.formats!r}")
    out = Path(options.out)
    check_destination(out, overwrite=options.overwrite)
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
        check_destination(out, overwrite=options.overwrite)  # another export may be there now
        export(trained, out, formats=formats, rows=rows)


def _parser() -> OneLineParser:
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
    return parser
