"""Fine-tune on all of GLUE with the published tables and seeds."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command


@command("glue_all")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    from sot_paddle.search.glue_all import run_command

    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
