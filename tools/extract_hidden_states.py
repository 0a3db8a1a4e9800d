"""Store the hidden states of a frozen encoder in HDF5."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.train.commands import program

main = program("extract_hidden_states")

if __name__ == "__main__":
    sys.exit(main())
