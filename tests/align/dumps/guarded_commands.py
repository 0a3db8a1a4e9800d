"""``python -m align dump`` and ``compare`` as a user runs them, in this process; no tests here."""

from __future__ import annotations

from align.commands import dump_commands
from sot_paddle.guard import command

main_compare = command("align: error")(dump_commands.main_compare)
main_dump = command("align: error")(dump_commands.main_dump)
