"""Write a trained model as graph files, for Paddle's runtime and as ONNX, and check them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.runtime import quiet_imports


@command("export")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    with quiet_imports():
        from sot_paddle.deploy.export_command import run_command
    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
