"""Turn text of any size into rows of token ids for pre-training."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("prepare_pretraining", "sot_paddle.train.preparation_command:prepare")

if __name__ == "__main__":
    sys.exit(main())
