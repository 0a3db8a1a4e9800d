"""Fine-tune on all of GLUE with the published tables and seeds."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("glue_all", "sot_paddle.search.glue_all:run_command")

if __name__ == "__main__":
    sys.exit(main())
