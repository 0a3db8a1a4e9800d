"""Entry point of ``python -m align``."""

import sys


def _main() -> int:
    from align.cli import main

    return main()


if __name__ == "__main__":
    from align.verdict_process import guarded, runs_user_code

    sys.exit(guarded(_main, sys.argv[1:]) if runs_user_code(sys.argv[1:]) else _main())
