"""Train the AdapterPooler, or probes, on the hidden states of a frozen encoder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.command_line import parse
from sot_paddle.runtime import quiet_imports
from sot_paddle.tasks.state_options import ADAPTER_COMMAND


@command("train_adapter")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    options = parse(ADAPTER_COMMAND, arguments)  # --help ends here, before anything heavy is loaded
    with quiet_imports():
        from sot_paddle.train import adapter_command, session
    return session.finish(ADAPTER_COMMAND, lambda: adapter_command.run_config(options))


if __name__ == "__main__":
    sys.exit(main())
