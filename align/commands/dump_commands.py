"""``python -m align dump`` and ``python -m align compare``: both sides on different machines."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from align.commands.spec import USER_ERRORS, read_spec
from align.verdict_process import add_timeout
from sot_paddle.cli import CommandParser
from sot_paddle.runtime import ignore_import_warnings

_STATUS = "exit status: 0 {good}; {bad}2 could not run (one line says why); 130, 143 interrupted."
_DUMP = f"""\
Run one side of a pair and write everything that a comparison needs into a folder: weights, the
output of every layer, loss, gradients, training, hashes of the inputs. Only the framework of that
side has to be installed. Files are safetensors and JSON; no pickle is written or read.

{_STATUS.format(good="written", bad="")}"""
_DUMP_EXAMPLES = """\
examples:
  python -m align dump --side torch  --spec my_pair.py --out from_torch
  python -m align dump --side paddle --spec my_pair.py --out from_paddle --weights from_torch
  python -m align dump --side paddle --spec my_pair.py --out own         weights of its own
  python -m align dump --side torch  --spec my_pair.py --out small --dtype float32 --shallow"""
_COMPARE = f"""\
Judge a Paddle dump by a PyTorch dump, with the rules of `python -m align --spec`. No framework is
needed. Refused: two dumps of one framework, other inputs, labels, weights or settings, a file that
is missing, truncated or changed.

{_STATUS.format(good="everything agrees", bad="1 a difference, or a fault went unseen; ")}"""
_COMPARE_EXAMPLES = """\
examples:
  python -m align compare from_torch from_paddle
  python -m align compare from_torch from_paddle --out report --json result.json --junit result.xml
  python -m align compare from_torch own --table weights_draft.json
  python -m align compare from_torch from_paddle --reprod logs     for ReprodDiffHelper"""


def _parser(name: str, description: str, examples: str) -> CommandParser:
    return CommandParser(
        prog=f"python -m align {name}",
        description=description,
        epilog=examples,
        status="",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _dump_parser() -> CommandParser:
    parser = _parser("dump", _DUMP, _DUMP_EXAMPLES)
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
    parser.add_argument("--dtype", choices=("float64", "float32"), action="append", default=[])
    parser.add_argument(
        "--no-shake", action="store_true", help="torch: leave fresh zeros and ones where they are"
    )
    parser.add_argument(
        "--shallow",
        action="store_true",
        help="leave out what every layer was given: half the size, but no cause is named",
    )
    parser.add_argument(
        "--names", action="store_true", help="run nothing: what --against of the other side needs"
    )
    parser.add_argument(
        "--reprod", metavar="DIR", help="write reprod_log files of this side as well (pickles)"
    )
    add_timeout(parser)
    return parser


def _compare_parser() -> CommandParser:
    parser = _parser("compare", _COMPARE, _COMPARE_EXAMPLES)
    parser.add_argument("first", metavar="A", help="a dump")
    parser.add_argument("second", metavar="B", help="the other side's dump, in any order")
    parser.add_argument("--out", metavar="DIR", help="write report.html and report.json there")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")
    parser.add_argument(
        "--table", metavar="FILE", help="names that differ, instead of those of the dumps' spec"
    )
    parser.add_argument("--dtype", choices=("float64", "float32"), action="append", default=[])
    parser.add_argument(
        "--reprod", metavar="DIR", help="write the classic checks as reprod_log files (pickles)"
    )
    return parser


def main_dump(argv: Sequence[str]) -> int:
    """Run `dump` with its arguments; returns the exit status."""
    options = _dump_parser().parse_args(argv)
    ignore_import_warnings()
    from align.record.files.dump_reading import Dump
    from align.report.report import check_writable
    from align.stages import dumping

    wrong = {"torch": "weights", "paddle": "against"}[options.side]
    if getattr(options, wrong):
        raise ValueError(f"--{wrong} belongs to the other side, see --help")
    if options.names and options.reprod:
        raise ValueError("--reprod means nothing with --names, which runs nothing: leave it out")
    spec, out = Path(options.spec), Path(options.out)
    if options.reprod and Path(options.reprod).resolve().is_relative_to(out.resolve()):
        raise ValueError(f"--reprod {options.reprod}: lies in {out}, a dump holds no pickle")
    given = read_spec(spec)
    dtype = tuple(dict.fromkeys(options.dtype)) or given.dtype
    shake = given.shake and not options.no_shake
    given = dataclasses.replace(given, dtype=dtype, shake=shake)
    other = options.weights or options.against
    held = None if other is None else Dump(other)
    check_writable([options.reprod])
    try:
        kept = {"deep": not options.shallow, "names_only": options.names}
        asked = dumping.request(options.side, given, spec, other=held, **kept)
        made = dumping.dump(asked, out)
    except USER_ERRORS as error:
        if isinstance(error, ValueError | OSError):
            raise
        text = " ".join(str(error).split())[:500]
        raise ValueError(f"--spec {spec}: {type(error).__name__}: {text}") from error
    print(said(made))
    if options.reprod:
        from align.report.dump_classic import write_side

        written = write_side(made, Path(options.reprod))
        print(f"reprod_log: {len(written)} files in {options.reprod}")
    return 0


def said(dump: Any) -> str:
    """What was written, for the console."""
    meta, files = dump.meta, dump.folder.files
    size = sum(row["bytes"] for row in files.values()) / 2**20
    ran = f" {meta.framework['version']} on {meta.framework['device']}" if meta.framework else ""
    lines = [
        f"{meta.title}{ran}: {meta.name}, "
        f"{', '.join(meta.dtypes)}, {len(meta.entries)} tensors, {len(meta.modules)} modules, "
        f"{meta.steps} training steps",
        f"{dump.path}: {len(files)} files, {size:.1f} MiB, weights {meta.weights[:12]}",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in meta.notes)])


def main_compare(argv: Sequence[str]) -> int:
    """Run `compare` with its arguments; returns the exit status."""
    options = _compare_parser().parse_args(argv)
    ignore_import_warnings()
    from align.commands import dump_comparing
    from align.match.name_table import read_table
    from align.record.files.dump_reading import Dump
    from align.report.report import check_writable, write_asked

    table = read_table(options.table) if options.table else None
    dumps = Dump(options.first), Dump(options.second)
    dtypes = dump_comparing.common(*dumps, options.dtype)
    check_writable([options.out, options.reprod], [options.json, options.junit])
    folder = Path(options.out) if options.out else Path()
    names = dump_comparing.pair_up(*dumps, table=table, folder=folder)
    outcome = dump_comparing.judge(names, dtypes)
    print(outcome)
    if options.reprod:
        from align.report.dump_classic import write_both

        written = write_both(names, dtypes, Path(options.reprod))
        print(f"reprod_log: {len(written)} files in {options.reprod}")
    write_asked(outcome.report, options.out, options.json, options.junit)
    return outcome.exit_code
