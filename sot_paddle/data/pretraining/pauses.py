"""When a long preparation records how far it is."""

from __future__ import annotations

import time


class Pauses:
    """Says every so many seconds that it is time to record the state.

    Args:
        seconds: between two records, 0 for at every question.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds, self._last = seconds, time.monotonic()

    def due(self) -> bool:
        """Whether it is time; then the next time is counted from now."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True
