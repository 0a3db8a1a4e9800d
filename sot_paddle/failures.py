"""Why a command ends before its work is done: exit statuses, and what a training raises."""

from __future__ import annotations

REFUSED = 2
"""Exit status of a command that could not start, or had to stop (NaN loss, no space)."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

TERMINATED = 143
"""Exit status after SIGTERM."""


class TrainingStopped(RuntimeError):
    """A run that ended before its last step; what was saved is intact."""

    def __init__(self, reason: str, *, status: int = REFUSED) -> None:
        super().__init__(reason)
        self.status = status


class NonFiniteLoss(TrainingStopped):
    """The loss became NaN or infinite; raised before the optimizer could spread it."""


class NonFiniteState(TrainingStopped):
    """A weight, a moment or an average is NaN or infinite; raised before it reaches the disk."""


class StorageFailure(TrainingStopped):
    """A file could not be written (no space, no permission); nothing half-written remains."""


class Interrupted(TrainingStopped):
    """The user (Ctrl-C) or the system (SIGTERM) asked the run to stop."""

    def __init__(self, reason: str, *, status: int = INTERRUPTED) -> None:
        super().__init__(reason, status=status)


class Terminated(KeyboardInterrupt):
    """SIGTERM came: ends a command as Ctrl-C does, with another status."""
