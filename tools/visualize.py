"""Show where ClassT, WordT and their sum look: maps over images, or the impact of each word."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("visualize", "sot_paddle.explain.command:run_command")

if __name__ == "__main__":
    sys.exit(main())
