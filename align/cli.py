"""``python -m align``: the port's own models, and the subcommands spec, dump and compare.

Nothing heavy is imported before the command line is read, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
from collections.abc import Callable, Sequence

from sot_paddle.cli import CommandParser, command, ending_at_once
from sot_paddle.runtime import ignore_import_warnings

MINUTES = 30.0
"""In which a command that runs a user's files has to reach its verdict."""
_DTYPES = ("float64", "float32")
_STATUS = """\
exit status: 0 {good}; {bad}2 could not run (one line
says why); 130 interrupted, 143 terminated."""
_VERDICT = _STATUS.format(good="everything agrees", bad="1 a difference, or a fault went unseen; ")

_PORT = f"""\
Compare every model of the Paddle port with the independent PyTorch reference, step by step as any
pair, and check in the same run that every step would have noticed a fault (negative controls).

{_VERDICT}"""
_PORT_EXAMPLES = """\
examples:
  python -m align --quick                   small models only, a minute or two on two idle cores
  python -m align --out align_report        everything, with the HTML report and the log files
  python -m align --case 'bert_mgcrp*' --dtype float64

subcommands, each with its own --help:
  spec FILE      compare a pair of your own
  dump           run one side alone, where the other framework is not installed
  compare A B    judge two dumps, where neither is"""
_SPEC = f"""\
Compare the pair of models that a small Python file defines: torch_module(), paddle_layer(),
inputs() and any argument of align.compare. docs/align_your_own.md begins from nothing.

{_VERDICT}"""
_DUMP = f"""\
Run one side of a pair and write everything that a comparison needs into a folder: weights, the
output of every layer, loss, gradients, training, hashes of the inputs. Only the framework of that
side has to be installed. Files are safetensors and JSON; no pickle is written or read.

{_STATUS.format(good="written", bad="")}"""
_COMPARE = f"""\
Judge a Paddle dump by a PyTorch dump, with the rules of `python -m align spec`. No framework is
needed. Refused: two dumps of one framework, other inputs, labels, weights or settings, a file that
is missing, truncated or changed.

{_VERDICT}"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line.

    Returns:
        The options; `subcommand` is "port", "spec", "dump" or "compare", `module` the one that runs
        it, and `timeout` is None where the command runs none of the user's files.
    """
    subcommand = _SUBCOMMANDS.get(arguments[0]) if arguments else None
    if subcommand is None:
        return _port_parser().parse_args(arguments)
    return subcommand().parse_args(arguments[1:])


@command("align: error")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    options = parse(arguments)
    ignore_import_warnings()
    with ending_at_once():
        module = importlib.import_module(options.module)  # nothing else is loaded for it
    return getattr(module, f"run_{options.subcommand}")(options)


def _port_parser() -> CommandParser:
    parser = _parser("port", "align.port.port_run", _PORT, _PORT_EXAMPLES)
    parser.add_argument(
        "--case", action="append", metavar="C", help="name or pattern of cases; may be repeated"
    )
    parser.add_argument("--dtype", choices=(*_DTYPES, "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="small models only")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    _add_files(parser, "report.html, report.json and reprod_log files")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="a BERT checkpoint instead of the installed one"
    )
    parser.add_argument(
        "--sentences", metavar="FILE", help="one sentence a line, instead of the embedded ones"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="worker processes [at most 2]; 0: in this process"
    )
    return parser


def _spec_parser() -> CommandParser:
    parser = _parser("spec", "align.commands.spec", _SPEC)
    parser.add_argument("spec", metavar="FILE", help="the pair, see docs/align_your_own.md")
    parser.add_argument(
        "--inject", action="store_true", help="feed each layer PyTorch's inputs too"
    )
    parser.add_argument("--dtype", choices=(*_DTYPES, "both"), default="both")
    _add_files(parser, "report.html and report.json")
    _add_timeout(parser)
    return parser


def _dump_parser() -> CommandParser:
    parser = _parser("dump", "align.commands.dumps", _DUMP)
    parser.add_argument("--side", choices=("torch", "paddle"), required=True)
    parser.add_argument(
        "--spec", metavar="FILE", required=True, help="the pair, see docs/align_your_own.md"
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="a folder that does not exist")
    parser.add_argument(
        "--weights", metavar="DUMP", help="paddle: run on the weights of this PyTorch dump"
    )
    parser.add_argument(
        "--against", metavar="DUMP", help="torch: follow the norms of this Paddle dump"
    )
    parser.add_argument("--dtype", choices=_DTYPES, action="append", default=[])
    _add_timeout(parser)
    return parser


def _compare_parser() -> CommandParser:
    parser = _parser("compare", "align.commands.dumps", _COMPARE)
    parser.add_argument("first", metavar="A", help="a dump")
    parser.add_argument("second", metavar="B", help="the other side's dump, in any order")
    _add_files(parser, "report.html and report.json")
    parser.add_argument("--dtype", choices=_DTYPES, action="append", default=[])
    parser.add_argument("--reprod", metavar="DIR", help="also write reprod_log files (pickles)")
    return parser


_SUBCOMMANDS: dict[str, Callable[[], CommandParser]] = {
    "spec": _spec_parser,
    "dump": _dump_parser,
    "compare": _compare_parser,
}


def _parser(subcommand: str, module: str, description: str, examples: str = "") -> CommandParser:
    parser = CommandParser(
        prog="python -m align" + (f" {subcommand}" if subcommand in _SUBCOMMANDS else ""),
        description=description,
        epilog=examples,
        status="",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(subcommand=subcommand, module=module, timeout=None)
    return parser


def _add_files(parser: CommandParser, in_folder: str) -> None:
    """Give a command the options for what it writes beside the console's text."""
    parser.add_argument("--out", metavar="DIR", help=f"write {in_folder} there")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")


def _add_timeout(parser: CommandParser) -> None:
    what = f"end without a verdict after so many minutes [{MINUTES:g}]"
    parser.add_argument("--timeout", type=_minutes, default=MINUTES, metavar="MINUTES", help=what)


def _minutes(text: str) -> float:
    """Read a number of minutes above 0, for argparse."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if value > 0 and math.isfinite(value):
            return value
    raise argparse.ArgumentTypeError(f"expected minutes, a number above 0, got {text!r}")
