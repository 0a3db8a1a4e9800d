"""Entry point of ``python -m align`` and of the installed command ``sot-align``."""

import functools
import sys

from align import cli
from align.verdict_process import guarded


def main() -> int:
    """Run the command of this process; what executes a user's files has a process of its own."""
    run = functools.partial(cli.main, sys.argv[1:])
    minutes = cli.parse(sys.argv[1:]).timeout
    return run() if minutes is None else guarded(run, minutes)


if __name__ == "__main__":
    sys.exit(main())
