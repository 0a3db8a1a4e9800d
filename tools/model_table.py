"""Print the vision models beside the published figures: parameters, multiply-adds, throughput.

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
from sot_paddle.complexity import Cost, format_table
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
    add("--throughput", action="store_true", help="also measure images per second (eval mode)")
    add("--batch-size", type=positive, default=8, metavar="B", help="of --throughput; default: 8")
    return parser


@command("model_table: error")
def main(arguments: list[str]) -> None:
    """Run the command; returns its exit status."""
    options = build_parser().parse_args(arguments)
    batch = options.batch_size if options.throughput else None
    rows = []
    for name in options.models:
        if name in list_models("text"):
            raise ValueError(f"{name} is a text model; expected {', '.join(PUBLISHED_COSTS)}")
        model = create_model(name, options.num_classes, img_size=options.img_size)
        rows.append(Cost.of(model, throughput_batch=batch))
    print(format_table(rows))
    print(NOTES)


if __name__ == "__main__":
    sys.exit(main())
