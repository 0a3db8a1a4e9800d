"""Fine-tune a language model on whole texts: IMDB, TREC, Yahoo Answers or own tables."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.commands import program

main = program("train_text")

if __name__ == "__main__":
    sys.exit(main())
