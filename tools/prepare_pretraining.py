"""Turn text of any size into rows of token ids for pre-training."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command


@command("prepare_pretraining")
def main(arguments: list[str]) -> None:
    """Run the command."""
    from sot_paddle.train.preparation_command import prepare

    prepare(arguments)


if __name__ == "__main__":
    sys.exit(main())
