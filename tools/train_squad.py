"""Fine-tune a language model on SQuAD 2.0."""

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
            from align.weights.formats.checkpoint_reading import read_as_paddle
            from sot_paddle.train.squad_command import run_command
    except KeyboardInterrupt:
        return 130
    return run_command(arguments, read_as_paddle)


if __name__ == "__main__":
    sys.exit(main())
