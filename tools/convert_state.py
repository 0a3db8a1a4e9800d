"""Move a whole training between PyTorch and Paddle: weights, optimizer, place in the schedule."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import CommandParser, command
from sot_paddle.convert import TABLES
from sot_paddle.convert.state.command import StateRequest, convert_state
from sot_paddle.convert.state.record import KINDS

EXAMPLES = """\
the checkpoint of a PyTorch training for any Paddle loop, and back again:
  convert_state.py --from torch begun.pth --to paddle OUT --layout bert_hf --model bert_base
  convert_state.py --from paddle OUT --to torch BACK.pth --layout bert_hf --names names.json

PyTorch's side is one torch file with weights, optimizer and scheduler. When it fails, nothing is
written. See docs/weights.md.
"""


def build_parser() -> CommandParser:
    """Describe the command line."""
    parser = CommandParser(prog="convert_state", description=__doc__, epilog=EXAMPLES)
    add = parser.add_argument
    pair = ("SIDE", "PATH")
    add("--from", dest="source", nargs=2, metavar=pair, required=True, help="torch or paddle")
    add("--to", dest="target", nargs=2, metavar=pair, required=True, help="the other side")
    add("--layout", required=True, metavar="L", help=f"PyTorch's names: {', '.join(TABLES)}")
    add("--model", default="", metavar="M", help="registry name, when neither side says it")
    add(
        "--names",
        type=Path,
        metavar="FILE",
        help="JSON: names of PyTorch's parameter groups, which the way back needs",
    )
    add("--optimizer", default="", choices=KINDS, help="when PyTorch's state is silent")
    add("--unused", action="store_true", help="weights without moments had no gradient yet")
    add("--overwrite", action="store_true", help="replace an existing PATH of --to")
    return parser


@command("convert_state: error")
def main(arguments: list[str]) -> None:
    """Run the command; when it fails, nothing is written."""
    options = vars(build_parser().parse_args(arguments))
    for end in ("source", "target"):
        side, path = options[end]
        options[end] = (side, Path(path).absolute())
    print(convert_state(StateRequest(**options)))


if __name__ == "__main__":
    sys.exit(main())
