"""``python -m align``: prove the port, write the evidence, say one verdict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from align.port import port_run
from align.port.row import DTYPES, PortRow
from align.record.results import StepResult
from align.verdict_process import add_timeout
from sot_paddle.cli import CommandParser, command
from sot_paddle.reading import read_text
from sot_paddle.runtime import ignore_import_warnings

_DESCRIPTION = """\
Compare every model of the Paddle port with the independent PyTorch reference, step by step as any
pair, and check in the same run that every step would have noticed a fault (negative controls).

exit status: 0 everything agrees and every control was caught; 1 a comparison failed or a control
was not caught; 2 could not run (one line says why); 130 interrupted; 143 terminated."""

_EXAMPLES = """\
examples:
  python -m align --quick                      small models only, a minute or two on two idle cores
  python -m align --out align_report           everything, with the HTML report and the log files
  python -m align --case 'bert_mgcrp*' --dtype float64
  python -m align --case checkpoint_sentences --sentences my_sentences.txt
  python -m align --spec my_pair.py --inject   your own pair, see docs/align_your_own.md

two more commands, each with its own --help:
  python -m align dump     run one side alone, where the other framework is not installed
  python -m align compare  judge two dumps, where neither is"""


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m align",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        status="",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--case", action="append", metavar="C", help="name or pattern of cases; may be repeated"
    )
    parser.add_argument("--dtype", choices=(*DTYPES, "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="small models only")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument(
        "--out", metavar="DIR", help="write report.html, report.json and reprod_log files there"
    )
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--junit", metavar="FILE", help="write the results as JUnit XML, for continuous integration"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="a BERT checkpoint (Hugging Face directory) instead of the installed one",
    )
    parser.add_argument(
        "--sentences",
        metavar="FILE",
        help="text file, one sentence a line, instead of the embedded sentences",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="worker processes, one thread each (default: one for each processor, at most 2); "
        "0 runs everything in this process",
    )
    _add_spec_options(parser)
    return parser


def _add_spec_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spec",
        metavar="FILE",
        help="compare the pair that this Python file defines instead of the project's own",
    )
    parser.add_argument(
        "--inject",
        action="store_true",
        help="with --spec: also feed each layer the reference's inputs, to list every wrong one",
    )
    add_timeout(parser)


def _only(options: argparse.Namespace, mode: str, others: Sequence[str]) -> None:
    """Refuse options that mean nothing in a mode of the command."""
    given = [f"--{name.replace('_', '-')}" for name in others if getattr(options, name)]
    if given:
        raise ValueError(f"{given[0]} means nothing with {mode}")


_CASES = ("case", "quick", "checkpoint", "sentences")
_SPEC = ("inject", "timeout")


def _run_spec(options: argparse.Namespace) -> int:
    """``--spec``: the user's own pair."""
    _only(options, "--spec", (*_CASES, "list", "jobs"))
    _check_writable(options)
    from align.commands.spec import Files, run_spec

    dtype = () if options.dtype == "both" else (options.dtype,)
    files = Files(options.out, options.json, options.junit)
    path = Path(options.spec)
    return run_spec(path, dtype, options.inject, files)


def _sentences(path: str | None) -> list[str]:
    if path is None:
        return []
    lines = read_text(path, encoding="utf-8-sig").splitlines()
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path} holds no sentence; expected one a line")
    return lines


def _show(row: str, results: Sequence[StepResult]) -> None:
    """Print a line for a row that is done: verdict, name, the steps that fail, seconds."""
    wrong = dict.fromkeys(result.step for result in results if not result.passed)
    mark = "FAIL" if wrong else "PASS"
    seconds = sum(result.seconds for result in results)
    text = f"{mark} {row:38s} {seconds:6.1f} s  {', '.join(wrong)}"
    print(text.rstrip(), file=sys.stderr, flush=True)


def _list(rows: Sequence[PortRow]) -> None:
    for row in rows:
        ends = "forward" if row.forward_only else "backward"
        print(f"{row.name:42s} {'training' if row.recipe else ends:9s} {', '.join(row.dtypes)}")


def _check_writable(options: argparse.Namespace) -> None:
    """Refuse an impossible destination before an hour of work, not after it."""
    from align.report.report import check_writable

    check_writable([options.out], [options.json, options.junit])


def _run(options: argparse.Namespace) -> int:
    if options.spec:
        return _run_spec(options)
    for name in _SPEC:
        if getattr(options, name):
            raise ValueError(f"--{name} belongs to --spec")
    rows = port_run.select(port_run.ROWS, options.case or (), options.quick)
    if options.list:
        _list(rows)
        return 0
    _check_writable(options)
    dtypes = DTYPES if options.dtype == "both" else (options.dtype,)
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    asked = port_run.PortRun(rows, dtypes, checkpoint, _sentences(options.sentences))
    from align.record import run_report
    from align.report import report as writer
    from align.report import reprod

    report, checks = port_run.run(asked, options.jobs, _show)
    report.about = run_report.origin()
    print(writer.console(report))
    if options.out:
        reprod.write_reprod(Path(options.out) / "reprod_log", checks)
    writer.write_asked(report, options.out, options.json, options.junit)
    return report.exit_code


@command("align: error")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    if arguments[:1] in (["dump"], ["compare"]):
        from align.commands import dump_commands

        name, *rest = arguments
        chosen = {"dump": dump_commands.main_dump, "compare": dump_commands.main_compare}[name]
        return chosen(rest)
    options = _parser().parse_args(arguments)
    ignore_import_warnings()
    return _run(options)
