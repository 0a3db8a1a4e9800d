"""A preparation that dies at one of its questions, as a kill would end it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sot_paddle.data.pretraining.journal import Journal


@contextmanager
def dying(questions: int) -> Iterator[None]:
    """Every second question whether to record is answered with yes, and one ends the work."""
    left = questions

    def due(journal: Journal) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return left % 2 == 0  # what was written since the last record is lost

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Journal, "due", due)
        yield
