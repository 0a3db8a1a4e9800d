"""Code that the measurement of coverage leaves out: what only the reference or a judge runs.

The tracer costs time in every Python call, whoever's it is. What is known to run no line of the
product in a compared way (imports of the frameworks, PyTorch's side, a model with a planted fault)
runs without it. A pause in the wrong place can only hide lines that ran, never invent one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

STARTED_BY = "COVERAGE_PROCESS_START"
"""Environment variable with which coverage.py starts itself in every Python process."""


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """Run the block, or with ``@unmeasured()`` the function, without the tracer of coverage.py.

    Nothing happens where no coverage is measured: a debugger's tracer stays.
    """
    if STARTED_BY not in os.environ:
        yield
        return
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
