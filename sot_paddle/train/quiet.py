"""Importing Paddle, paddlenlp and their company without what they say about themselves.

Standard library only, so that a tool can use it before anything else is imported.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator

from sot_paddle.guard import importing
from sot_paddle.runtime import quiet_graphs


class _Muted(io.TextIOBase):
    """Stands for stderr during imports: silent then, afterwards as if it were stderr itself."""

    importing = True

    def write(self, text: str) -> int:
        """Drop the text, or pass it on."""
        return len(text) if self.importing else sys.__stderr__.write(text)

    def flush(self) -> None:
        """Flush the real one."""
        sys.__stderr__.flush()


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Silence stderr and warnings inside of the block; loggers made there speak afterwards.

    A signal ends a command there at once: half of an imported module is nothing to go on from.
    """
    quiet_graphs()
    muted = _Muted()
    with importing(), warnings.catch_warnings(), contextlib.redirect_stderr(muted):
        warnings.simplefilter("ignore")
        yield
    muted.importing = False
