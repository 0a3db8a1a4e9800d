"""Draw what each layer of an encoder knows alone, from runs that trained probes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command


@command("layer_map")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    from sot_paddle.explain.layer_map import run_command

    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
