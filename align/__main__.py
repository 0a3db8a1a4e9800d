"""Entry point of ``python -m align`` and of the installed command ``sot-align``."""

import sys

from align.verdict_process import guarded, runs_user_code
from sot_paddle.cli import command, ending_at_once


@command("align: error")
def _work(arguments: list[str]) -> int:
    with ending_at_once():
        from align.cli import main

    return main(arguments)


def main() -> int:
    """Run the command of this process; what executes a user's files has a process of its own."""
    return guarded(_work, sys.argv[1:]) if runs_user_code(sys.argv[1:]) else _work()


if __name__ == "__main__":
    sys.exit(main())
