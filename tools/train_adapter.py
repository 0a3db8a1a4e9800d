"""Train the AdapterPooler, or probes, on the hidden states of a frozen encoder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.commands import program

main = program("train_adapter")

if __name__ == "__main__":
    sys.exit(main())
