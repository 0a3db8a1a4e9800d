"""Ends of a run that are not a crash: each is one line for the user and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable

REFUSED = 2
"""Exit status of a command that could not start, or had to stop (NaN loss, no space)."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

TERMINATED = 143
"""Exit status after SIGTERM."""


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


class NonFiniteState(TrainingStopped):
    """A weight, a moment or an average is NaN or infinite; raised before it reaches the disk."""


class StorageFailure(TrainingStopped):
    """A file could not be written (no space, no permission); nothing half-written remains."""


class Interrupted(TrainingStopped):
    """The user (Ctrl-C) or the system (SIGTERM) asked the run to stop."""

    def __init__(self, reason: str, *, status: int = INTERRUPTED) -> None:
        super().__init__(reason, status=status)


def exit_status(program: str, action: Callable[[], object]) -> int:
    """Run a command and turn the ways in which it can fail into one line and a status.

    Args:
        program: name at the beginning of the line on stderr.
        action: the command.

    Returns:
        0 when all is done, 2 when the command was refused or had to stop, 130 when it was
        interrupted.
    """
    try:
        action()
    except TrainingStopped as error:
        return _fail(program, error, error.status)
    except OSError as error:
        what = f"{error}; what was saved is intact: run the same command again"
        return _fail(program, what, REFUSED)
    except ValueError as error:
        return _fail(program, error, REFUSED)
    except KeyboardInterrupt:
        return _fail(program, "interrupted; run the same command again to continue", INTERRUPTED)
    return 0


def _fail(program: str, reason: object, status: int) -> int:
    line = " ".join(str(reason).split())
    print(f"{program}: {line}", file=sys.stderr)
    return status
