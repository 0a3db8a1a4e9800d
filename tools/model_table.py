"""Print the vision models beside the published figures: parameters and multiply-adds.

Multiply-adds are counted on a real forward pass, by two conventions: convolutions and linear layers
only (that of the published figures), and with the matrix products of attention and covariance.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle import create_model, list_models
from sot_paddle.cli import CommandParser, command
from sot_paddle.complexity import count_multiply_adds
from sot_paddle.registry import PUBLISHED_COSTS

NOTES = """\
published: README of the original release, at 224 x 224 and 1000 classes. It prints the figures of
SoT-Small once more for deit_small_sot; sizes of the *_sot heads on DeiT and Swin are inferred."""


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def build_parser() -> CommandParser:
    """Describe the command line."""
    parser = CommandParser(prog="model_table", description=__doc__)
    add = parser.add_argument
    names = list(PUBLISHED_COSTS)
    add("--models", nargs="+", default=names, metavar="M", help="default: all of them")
    add("--img-size", type=positive, default=224, metavar="PIXELS", help="default: 224")
    add("--num-classes", type=positive, default=1000, metavar="K", help="default: 1000")
    return parser


@command("model_table: error")
def main(arguments: list[str]) -> None:
    """Run the command; returns its exit status."""
    options = build_parser().parse_args(arguments)
    rows = [["model", "trainable", "published M", "GMACs conv+linear", "GMACs +matmul"]]
    rows[0] += ["published GFLOPs"]
    for name in options.models:
        if name in list_models("text"):
            raise ValueError(f"{name} is a text model; expected {', '.join(PUBLISHED_COSTS)}")
        model = create_model(name, options.num_classes, img_size=options.img_size)
        counted = count_multiply_adds(model)
        trainable = sum(int(p.size) for p in model.parameters() if not p.stop_gradient)
        millions, billions = PUBLISHED_COSTS.get(model.name, ("-", "-"))
        costs = [f"{counted.layers / 1e9:.3f}", f"{counted.total / 1e9:.3f}"]
        rows.append([model.name, f"{trainable:,}", str(millions), *costs, str(billions)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *padded]))
    print(NOTES)


if __name__ == "__main__":
    sys.exit(main())
