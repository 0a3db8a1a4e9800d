"""Train with several seeds and compare two configurations."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command


@command("sweep")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    from sot_paddle.search.sweep import run_command

    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
