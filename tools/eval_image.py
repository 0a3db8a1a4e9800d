"""Evaluate SoT, DeiT or Swin on a folder of images, on ImageNet-A, or on the embedded digits."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.commands import program

main = program("eval_image")

if __name__ == "__main__":
    sys.exit(main())
