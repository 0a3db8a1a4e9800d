"""What surrounds every command: its parser, its exit status, one line on stderr when it fails.

Standard library only, so that a tool can use it before all else.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import os
import pkgutil
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import sot_paddle

REFUSED, INTERRUPTED, TERMINATED = 2, 130, 143
"""Exit statuses: could not start or had to stop (NaN loss, no space); Ctrl-C; SIGTERM."""


class TrainingStopped(RuntimeError):
    """A run that ended before its last step; what was saved is intact."""

    def __init__(self, reason: str, *, status: int = REFUSED) -> None:
        super().__init__(reason)
        self.status = status


class NonFinite(TrainingStopped):
    """A loss, a weight, a moment or an average is NaN or infinite.

    It is raised before the optimizer could spread it and before it reaches the disk.
    """


class Terminated(KeyboardInterrupt):
    """SIGTERM came: ends a command as Ctrl-C does, with another status."""


TRACEBACK, VERSION = "--traceback", "--version"
STATUS = """\
exit status: 0 done; 2 refused or failed, with one line on stderr that says why; 130 after Ctrl-C,
143 after SIGTERM."""

_REFUSALS = (TrainingStopped, ValueError, OSError, ImportError, MemoryError, RecursionError)
"""What a user can do something about; anything else is a defect of ours."""


def command(program: str) -> Callable[[Callable], Callable[[Sequence[str] | None], int]]:
    """Make a function of the arguments a command.

    Returns:
        A decorator. The function takes the arguments without the program's name and returns None
        or an exit status; the command takes them too, by default those of the process, and always
        returns a status.
    """

    def wrap(main: Callable[[list[str]], int | None]) -> Callable[[Sequence[str] | None], int]:
        @functools.wraps(main)
        def run(arguments: Sequence[str] | None = None) -> int:
            words = list(sys.argv[1:] if arguments is None else arguments)
            if words == [VERSION]:  # before anything heavy is loaded
                CommandParser(prog=program.partition(":")[0]).parse_args(words)
            with answering({signal.SIGTERM: _terminate}):
                return exit_status(program, lambda: main(words))

        return run

    return wrap


def lazy_command(program: str, path: str) -> Callable[[Sequence[str] | None], int]:
    """Make a command of the function that a ``module:name`` names, imported when it is called."""

    @command(program)
    def main(arguments: list[str]) -> int | None:
        from sot_paddle.runtime import quiet_imports

        with quiet_imports():
            function = pkgutil.resolve_name(path)
        return function(arguments)

    return main


def exit_status(program: str, action: Callable[[], object]) -> int:
    """Run a command and turn every way in which it can fail into one line and a status.

    Returns:
        What the action returned where that is a number, else 0; 2 when the command was refused or
        had to stop (a defect of ours also shows its traceback), 130 after Ctrl-C, 143 after
        SIGTERM.

    Raises:
        SystemExit: the command line asked for help or was refused; it has been answered.
    """
    try:
        result = action()
        sys.stdout.flush()  # a result that cannot be written is a failure
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, Exception) as escaped:  # everything that escapes ends here
        error = behind = escaped
        while behind is not None:  # an extension that is imported wraps a signal in its own error
            error = behind if isinstance(behind, KeyboardInterrupt) else error
            behind = behind.__cause__
    if isinstance(error, Terminated):
        line, status = "terminated by SIGTERM; run the same command again", TERMINATED
    elif isinstance(error, KeyboardInterrupt):
        line, status = "interrupted; run the same command again", INTERRUPTED
    else:
        line = str(error) or type(error).__name__
        status = error.status if isinstance(error, TrainingStopped) else REFUSED
        if isinstance(error, ModuleNotFoundError):
            line += "; docs/setup.md says which extra of sot-paddle brings it (all: every package)"
        is_defect = not isinstance(error, _REFUSALS)
        if is_defect:
            line = f"{type(error).__name__}: {error}"
        if is_defect or TRACEBACK in sys.argv:
            traceback.print_exception(error)
    print(f"{program}: {' '.join(line.split())}", file=sys.stderr, flush=True)
    return status


@contextlib.contextmanager
def answering(answers: Mapping[int, Callable[[int, object], object]]) -> Iterator[None]:
    """Answer signals, by number, inside of the block; in the main thread only."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, answer) for n, answer in answers.items()} if is_main else {}
    try:
        yield
    finally:
        for number, answer in before.items():
            signal.signal(number, answer or signal.SIG_DFL)  # None: not set from Python


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated


def ending_at_once() -> contextlib.AbstractContextManager[None]:
    """Let Ctrl-C and SIGTERM end a command inside of the block: imports swallow exceptions.

    PADDLE: importing it replaces the answer to SIGTERM by a C++ trace; it is put back.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    is_command = signal.getsignal(signal.SIGTERM) is _terminate
    heard = [n for n in numbers if is_command and signal.getsignal(n) is not signal.SIG_IGN]
    return answering(dict.fromkeys(heard, lambda number, frame: os._exit(128 + number)))


class CommandParser(argparse.ArgumentParser):
    """Argument parser whose errors are one line, and which knows ``--traceback``.

    An option has to be written out: what an abbreviation means changes with every new option.

    Args:
        status: what ``--help`` ends with; "" where the description says it.
    """

    def __init__(self, *, status: str = STATUS, **options) -> None:
        ends = ((options.pop("epilog", None) or "").rstrip(), status)
        options["epilog"] = "\n\n".join(text for text in ends if text)
        as_typed = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"allow_abbrev": False, "formatter_class": as_typed, **options})
        self.add_argument(VERSION, action="version", version=f"%(prog)s {sot_paddle.__version__}")
        what = "after a failure, show where it arose as well as the line"
        self.add_argument(TRACEBACK, action="store_true", default=argparse.SUPPRESS, help=what)

    def parse_known_args(self, args=None, namespace=None):
        """Parse as argparse does; ``--traceback``, of `exit_status`, leaves no option here."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args([word for word in words if word != TRACEBACK], namespace)

    def error(self, message: str) -> NoReturn:
        """Print the message, with the flag that an unknown one is near to; end with status 2."""
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        near = unknown and difflib.get_close_matches(unknown[1], self._option_string_actions, n=1)
        message += f"; did you mean {near[0]}?" if near else ""
        self.exit(REFUSED, f"{self.prog}: error: {message} (--help lists the options)\n")
