"""Fine-tune BERT with the second-order head on GLUE, or on one's own TSV files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.commands import program

main = program("train_glue")

if __name__ == "__main__":
    sys.exit(main())
