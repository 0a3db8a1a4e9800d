"""Entry point of ``python -m align``."""

import sys

from align.cli import main

sys.exit(main())
