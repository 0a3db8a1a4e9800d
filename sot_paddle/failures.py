"""Ends of a command that are not a crash: each is one line for the user and an exit status.

`exit_status` is the only place of the project that catches whatever comes; :mod:`sot_paddle.guard`
puts it around every command. Standard library only.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

REFUSED = 2
"""Exit status of a command that could not start, or had to stop (NaN loss, no space)."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

TERMINATED = 143
"""Exit status after SIGTERM."""

LONGEST = 500
"""Characters of a foreign message that are shown: frameworks print whole stacks."""

_SUMMARY = "Error Message Summary:"  # in Paddle's errors; above it stands its C++ stack
_tracebacks = {"shown": False}


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


class Terminated(KeyboardInterrupt):
    """SIGTERM came: ends a command as Ctrl-C does, with another status."""


class ParserEnd(SystemExit):
    """A command line ended the command: it asked for help, or an option was refused."""


def show_tracebacks(shown: bool) -> None:
    """Whether `exit_status` prints the traceback above its line, in this process from now on."""
    _tracebacks["shown"] = shown


def exit_status(program: str, action: Callable[[], object]) -> int:
    """Run a command and turn every way in which it can fail into one line and a status.

    Args:
        program: name at the beginning of the line on stderr.
        action: the command.

    Returns:
        0 when all is done, 2 when the command was refused or had to stop, 130 after Ctrl-C, 143
        after SIGTERM.

    Raises:
        ParserEnd: the command line asked for help or was refused; it has been answered.
    """
    try:
        action()
    except ParserEnd:
        raise
    except BaseException as error:  # the one place: everything that escapes ends here
        line, status = told(error)
        if _tracebacks["shown"]:
            traceback.print_exception(error)
        print(f"{program}: {' '.join(line.split())}", file=sys.stderr, flush=True)
        return status
    return 0


def told(error: BaseException) -> tuple[str, int]:
    """What happened, where, and what to do, in a line, and the exit status."""
    text, place = _message(error), _place(error)
    if isinstance(error, TrainingStopped):
        return text, error.status
    if isinstance(error, Terminated):
        return f"terminated by SIGTERM; {_AGAIN}", TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return f"interrupted; {_AGAIN}", INTERRUPTED
    if isinstance(error, SystemExit):
        return (
            f"sys.exit({error.code!r}){place} ended the command before its work was done",
            REFUSED,
        )
    if isinstance(error, MemoryError):
        said = f": {text}" if text else ""
        return f"out of memory{place}{said}; take a smaller batch or model, or more memory", REFUSED
    if isinstance(error, RecursionError):
        return f"{text}{place}: something is nested too deeply or calls itself", REFUSED
    if isinstance(error, TimeoutError) and error.errno is None:
        return text, REFUSED
    if isinstance(error, OSError):
        place = "" if error.filename is not None else place
        return f"{text}{place}; what was saved is intact: run the same command again", REFUSED
    if isinstance(error, ValueError | ImportError) and not isinstance(error, UnicodeError) and text:
        return text, REFUSED
    kind = type(error).__name__
    return f"{kind}{place}: {text or 'no message'}; --traceback shows the calls", REFUSED


_AGAIN = "run the same command again"


def _message(error: BaseException) -> str:
    """The error's own words in one line; of a framework's stack what stands below it."""
    text = " ".join(str(error).split())
    if _SUMMARY in text:
        text = text.rpartition(_SUMMARY)[2].strip("- ")
    elif isinstance(error, TrainingStopped | ValueError | ImportError):
        return text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _place(error: BaseException) -> str:
    """File and line of the last call outside of installed packages, " at model.py:12"."""
    rows = traceback.extract_tb(error.__traceback__)
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    own = [row for row in rows if row.lineno and not row.filename.startswith((*libraries, "<"))]
    row = (own or rows or [None])[-1]
    return "" if row is None else f" at {Path(row.filename).name}:{row.lineno}"
