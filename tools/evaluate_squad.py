"""Score answers to SQuAD questions by the official definition."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command


@command("evaluate_squad")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    from sot_paddle.train.squad_evaluation import run_command

    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
