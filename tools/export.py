"""Write a trained model as graph files, for Paddle's runtime and as ONNX, and check them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("export", "sot_paddle.deploy.command:run_command")

if __name__ == "__main__":
    sys.exit(main())
