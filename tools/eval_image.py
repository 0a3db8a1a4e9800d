"""Evaluate SoT, DeiT or Swin on a folder of images, on ImageNet-A, or on the embedded digits."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command
from sot_paddle.command_line import parse
from sot_paddle.runtime import quiet_imports
from sot_paddle.train.image_flags import EVALUATION


@command("eval_image")
def main(arguments: list[str]) -> None:
    """Run the command."""
    config = parse(EVALUATION, arguments)  # --help ends here, before anything heavy is loaded
    with quiet_imports():
        from sot_paddle.train import image_evaluation
    image_evaluation.run_config(config)


if __name__ == "__main__":
    sys.exit(main())
