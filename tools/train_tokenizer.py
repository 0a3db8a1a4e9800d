"""Train a SentencePiece model on text of any size."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import lazy_command

main = lazy_command("train_tokenizer", "sot_paddle.train.preparation_command:train_tokenizer")

if __name__ == "__main__":
    sys.exit(main())
