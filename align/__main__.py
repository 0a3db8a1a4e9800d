"""Entry point of ``python -m align``."""

import sys

from align.cli import main

if __name__ == "__main__":
    sys.exit(main())
