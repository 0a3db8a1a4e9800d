"""`python -m align dump` and `compare` as a user runs them, and their judge; no tests here."""

from __future__ import annotations

from align import cli
from align.commands import dumps
from align.commands.steps import Outcome
from align.record.dump_files import Dump


def main_dump(arguments: list[str]) -> int:
    return cli.main(["dump", *arguments])


def main_compare(arguments: list[str]) -> int:
    return cli.main(["compare", *arguments])


def judged(first: Dump, second: Dump) -> Outcome:
    """The whole comparison of two dumps."""
    names = dumps.pair_up(first, second)
    return dumps.judge(names, dumps.common(first, second))
