"""The export command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sot_paddle.atomic import hold_beside
from sot_paddle.cli import CommandParser
from sot_paddle.runtime import quiet_imports

DESCRIPTION = """\
Write a trained model as graph files: model.json and model.pdiparams (paddle.jit.save) and
model.onnx (through paddle2onnx), with open batch and token axes, the tokenizer and export.json
beside them. Each is compared with the trained model on real inputs of several shapes; the largest
difference is printed. A folder that is farther than the bound is not left behind."""
EXAMPLES = """\
examples:
  python tools/export.py output/digits output/digits_export
  python tools/export.py OUTPUT/rte/best OUTPUT/rte_export
"""


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/export.py``, which writes all or nothing."""
    parser = CommandParser(prog="export.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL_FOLDER", help="of train_glue.py, _text or _image")
    add("out", metavar="DIR", help="folder of the export, made by the command")
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    options = parser.parse_args(arguments)
    with quiet_imports():  # --help needs no framework
        from sot_paddle.deploy.exporting import BOUND, export
        from sot_paddle.deploy.trained import open_trained
        from sot_paddle.train.device import prepare_device
    out = Path(options.out)
    prepare_device(dtype="float32", cpu=True)
    trained = open_trained(options.model, ema=not options.no_ema)
    out.parent.mkdir(parents=True, exist_ok=True)
    with hold_beside(out):
        differences = export(trained, out)
    for name, size in differences.items():
        print(f"{out / name}: largest difference {size:.1e} of the largest logit (bound {BOUND:g})")
