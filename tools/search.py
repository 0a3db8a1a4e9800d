"""Search hyper-parameters of a training command."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.search.search_command import run_command


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 done, 2 refused or failed (one line on stderr), 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return run_command(arguments, Path(__file__).resolve().parent)


if __name__ == "__main__":
    sys.exit(main())
