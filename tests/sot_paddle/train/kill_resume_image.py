"""Kill a tiny image run again and again; killing.py says how. Run it directly.

Augmentation, mixing, dropped paths, batch statistics and the moving average are all on.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import killing  # noqa: E402
import tiny_images  # noqa: E402

from sot_paddle.train.image_command import run_command  # noqa: E402

OPTIONS = (
    *("--recovery-interval", "2", "--gradient-accumulation-steps", "2", "--keep-states", "2"),
    *("--save-total-limit", "3", "--epochs", "2"),
)
COMPARED = (
    *("last/model.safetensors", "last/ema.safetensors", "last/optimizer.safetensors"),
    *("last/state.json", "last/config.json"),
    *("best/model.safetensors", "best/ema.safetensors", "best/best.json"),
)


def prepare(root: Path) -> killing.Scenario:
    """A tiny SoT with dense tokens on 27 images."""
    data = tiny_images.write_images(root / "images")

    def train(out: Path) -> int:
        flags = tiny_images.command(data, out, *tiny_images.DENSE, *OPTIONS)
        return run_command(flags)

    return killing.Scenario(train, COMPARED)


if __name__ == "__main__":
    sys.exit(killing.run(prepare, __doc__))
