"""`python -m align dump` and `compare` as a user runs them, and their judge; no tests here."""

from __future__ import annotations

from align.commands import dump_commands, dump_comparing
from align.commands.steps import Outcome
from align.record.files.dump_reading import Dump
from sot_paddle.cli import command

main_compare = command("align: error")(dump_commands.main_compare)
main_dump = command("align: error")(dump_commands.main_dump)


def judged(first: Dump, second: Dump) -> Outcome:
    """The whole comparison of two dumps."""
    names = dump_comparing.pair_up(first, second)
    return dump_comparing.judge(names, dump_comparing.common(first, second))
