"""Write a trained model as graph files, for Paddle's runtime and as ONNX, and check them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)
from sot_paddle.train.quiet import quiet_imports


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 done, 2 refused or failed (one line on stderr), 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with quiet_imports():
            from sot_paddle.deploy.export_command import run_command
    except KeyboardInterrupt:
        return 130
    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
