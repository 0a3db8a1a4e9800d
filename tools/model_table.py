"""Print the vision models beside the published figures: parameters and multiply-adds.

Multiply-adds are those of convolutions and linear layers (the convention of the published figures),
counted while a model runs on one image; matrix products of attention and covariance are left out.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import paddle
from paddle import nn

from sot_paddle import create_model, list_models
from sot_paddle.cli import CommandParser, command
from sot_paddle.registry import PUBLISHED_COSTS

NOTES = """\
published: README of the original release, at 224 x 224 and 1000 classes. It prints the figures of
SoT-Small once more for deit_small_sot; sizes of the *_sot heads on DeiT and Swin are inferred."""


def count_multiply_adds(model: nn.Layer) -> int:
    """Multiply-adds of the convolutions and linear layers for one image, in eval mode."""
    counts: list[int] = []

    def count(layer: nn.Layer, inputs: tuple[paddle.Tensor], output: paddle.Tensor) -> None:
        weight = layer.weight.shape  # (out, channels of a group, kernel) or (in, out)
        factors = weight[1:] if isinstance(layer, nn.Conv2D) else weight[:1]
        counts.append(math.prod([*output.shape, *factors]))

    for layer in model.sublayers():
        if isinstance(layer, nn.Conv2D | nn.Linear):
            layer.register_forward_post_hook(count)
    model.eval()
    config = model.backbone_config
    with paddle.no_grad():
        model(paddle.zeros([1, config.in_chans, config.img_size, config.img_size]))
    return sum(counts)


@command("model_table: error")
def main(arguments: list[str]) -> None:
    """Run the command; returns its exit status."""
    parser = CommandParser(prog="model_table", description=__doc__)
    names = list(PUBLISHED_COSTS)
    parser.add_argument("--models", nargs="+", default=names, metavar="M", help="default: all")
    parser.add_argument("--img-size", type=int, default=224, metavar="PIXELS", help="default: 224")
    parser.add_argument("--num-classes", type=int, default=1000, metavar="K", help="default: 1000")
    options = parser.parse_args(arguments)
    rows = [["model", "trainable", "published M", "GMACs", "published GFLOPs"]]
    for name in options.models:
        if name in list_models("text"):
            raise ValueError(f"{name} is a text model; expected {', '.join(PUBLISHED_COSTS)}")
        model = create_model(name, options.num_classes, img_size=options.img_size)
        trainable = sum(int(p.size) for p in model.parameters() if not p.stop_gradient)
        millions, billions = PUBLISHED_COSTS.get(model.name, ("-", "-"))
        multiply_adds = f"{count_multiply_adds(model) / 1e9:.3f}"
        rows.append([model.name, f"{trainable:,}", str(millions), multiply_adds, str(billions)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *padded]))
    print(NOTES)


if __name__ == "__main__":
    sys.exit(main())
