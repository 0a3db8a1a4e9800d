"""Store the hidden states of a frozen encoder in HDF5."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.command_line import parse
from sot_paddle.runtime import quiet_imports
from sot_paddle.tasks.state_options import EXTRACT_COMMAND


@command("extract_hidden_states")
def main(arguments: list[str]) -> None:
    """Run the command."""
    config = parse(EXTRACT_COMMAND, arguments)  # --help ends here, before anything heavy is loaded
    with quiet_imports():
        from sot_paddle.train import extraction
    extraction.extract_splits(config)


if __name__ == "__main__":
    sys.exit(main())
