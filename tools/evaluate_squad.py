"""Score answers to SQuAD questions by the official definition."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("evaluate_squad", "sot_paddle.train.squad_evaluation:run_command")

if __name__ == "__main__":
    sys.exit(main())
