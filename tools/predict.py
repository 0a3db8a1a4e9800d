"""Predict with a trained model or an export of it: files, folders or stdin to JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("predict", "sot_paddle.deploy.predictor:run_command")

if __name__ == "__main__":
    sys.exit(main())
