"""Store the hidden states of a frozen encoder in HDF5."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.runtime import quiet_imports


@command("extract_hidden_states")
def main(arguments: list[str]) -> None:
    """Run the command."""
    with quiet_imports():
        from sot_paddle.train.extraction import run_command
    run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
