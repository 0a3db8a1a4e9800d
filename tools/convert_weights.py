"""Convert weights between a PyTorch checkpoint and the Paddle models, both ways."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import CommandParser, command
from sot_paddle.convert import DTYPES, MODELS, TABLES, convert_file

BIG = 128 * 2**20  # bytes from which progress is shown
EXAMPLES = """\
there and back again; a released DeiT, and its backbone for our head:
  convert_weights.py --layout bert_hf --model bert_base HF_DIR bert.safetensors
  convert_weights.py --layout bert_hf --model bert_base --reverse bert.safetensors NEW_HF_DIR
  convert_weights.py --layout deit_official --model deit_tiny deit_tiny.pth deit.safetensors
  convert_weights.py --layout deit_official --model deit_tiny_sot deit_tiny.pth ours.safetensors

A DST without a suffix becomes a directory, which paddlenlp loads (--reverse: transformers); beside
a file DST stands DST.manifest.json. Torch files end in .bin, .pth, .pt, .pth.tar or .ckpt.
See docs/weights.md.
"""


def build_parser() -> CommandParser:
    """Describe the command line."""
    parser = CommandParser(prog="convert_weights", description=__doc__, epilog=EXAMPLES)
    layouts = "; ".join(f"{name}: {tables[0].description}" for name, tables in TABLES.items())
    add = parser.add_argument
    add("--layout", required=True, metavar="L", help=f"the PyTorch side's names. {layouts}")
    add("--model", required=True, metavar="M", help=f"{', '.join(MODELS)}; sizes come from SRC")
    add("--reverse", action="store_true", help="from Paddle back to PyTorch")
    add("--dtype", choices=DTYPES, help="change the floating tensors' dtype (default: keep)")
    add("--overwrite", action="store_true", help="replace an existing DST")
    add("--vocab", metavar="DIR", help="tokenizer files for DST, when SRC has none")
    add("--num-attention-heads", type=int, metavar="N", help="when SRC does not say (text)")
    add("--encoder-only", action="store_true", help="--reverse: drop what L cannot hold")
    add("--ema", action="store_true", help="the averaged weights of a training's file")
    add("src", metavar="SRC", help="*.safetensors, a torch file or a directory with weights")
    add("dst", metavar="DST", help="*.safetensors, *.pdparams (--reverse: a torch file)")
    return parser


def show_progress(done: int, total: int, name: str) -> None:
    """Print how far a big conversion is, on stderr."""
    if total >= BIG:
        line = f"\r{done / 2**20:6.0f} of {total / 2**20:.0f} MiB  {name:<64}"
        print(line, end="\n" if done == total else "", file=sys.stderr, flush=True)


@command("convert_weights: error")
def main(arguments: list[str]) -> None:
    """Run the command; when it fails, nothing is written."""
    options = vars(build_parser().parse_args(arguments))
    print(convert_file(**options, progress=show_progress).summary())


if __name__ == "__main__":
    sys.exit(main())
