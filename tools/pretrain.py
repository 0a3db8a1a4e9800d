"""Pre-train a language model on masked words and next sentences."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.commands import program

main = program("pretrain")

if __name__ == "__main__":
    sys.exit(main())
