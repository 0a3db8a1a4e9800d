"""Show where ClassT, WordT and their sum look: maps over images, or the impact of each word."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.runtime import quiet_imports


@command("visualize")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    with quiet_imports():
        from sot_paddle.explain.command import run_command
    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
