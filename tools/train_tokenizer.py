"""Train a SentencePiece model on text of any size."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import command


@command("train_tokenizer")
def main(arguments: list[str]) -> None:
    """Run the command."""
    from sot_paddle.train.preparation_command import train_tokenizer

    train_tokenizer(arguments)


if __name__ == "__main__":
    sys.exit(main())
