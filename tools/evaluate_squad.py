"""Score answers to SQuAD questions by the official definition."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.squad_evaluation import run_command


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 done, 2 refused (one line on stderr)."""
    return run_command(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
