"""Ends of a run that are not a crash: each is one line for the user and an exit status."""

from __future__ import annotations

REFUSED = 2
"""Exit status of a command that could not start, or had to stop (NaN loss, no space)."""

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM."""


class TrainingStopped(RuntimeError):
    """A run that ended before its last step; what was saved is intact.

    Args:
        reason: one line: what happened, and what to do.
        status: exit status of the command.
    """

    def __init__(self, reason: str, *, status: int = REFUSED) -> None:
        super().__init__(reason)
        self.status = status


class NonFiniteLoss(TrainingStopped):
    """The loss became NaN or infinite; raised before the optimizer could spread it."""


class StorageFailure(TrainingStopped):
    """A file could not be written (no space, no permission); nothing half-written remains."""


class Interrupted(TrainingStopped):
    """The user or the system asked the run to stop."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, status=INTERRUPTED)
