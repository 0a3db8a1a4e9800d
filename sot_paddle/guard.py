"""What surrounds every command: its parser, its streams, its signals, its exit status.

A tool's ``main`` is a function of the arguments with `command` around it. Whatever escapes it is
one line (:func:`sot_paddle.failures.exit_status`). A reader that goes away early (``... | head``)
changes neither the work nor its status; output that cannot be written is a failure. SIGTERM ends a
command as Ctrl-C does. Standard library only, so that a tool can use it before all else.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TextIO

from sot_paddle.failures import ParserEnd, Terminated, exit_status, show_tracebacks

TRACEBACK = "--traceback"
STATUS = """\
exit status: 0 done; 2 refused or failed, with one line on stderr that says why; 130 after Ctrl-C,
143 after SIGTERM."""


class CommandParser(argparse.ArgumentParser):
    """Argument parser whose errors are one line, and which knows the options of every command.

    An option has to be written out: what an abbreviation means changes with every new option.

    Args:
        status: what ``--help`` ends with; "" where the description says it.
        options: as argparse's.
    """

    def __init__(self, *, status: str = STATUS, **options) -> None:
        ends = ((options.pop("epilog", None) or "").rstrip(), status)
        options["epilog"] = "\n\n".join(text for text in ends if text)
        super().__init__(**{"allow_abbrev": False, **options})
        self.add_argument(
            TRACEBACK,
            action="store_true",
            default=argparse.SUPPRESS,
            dest=argparse.SUPPRESS,
            help="after a failure, show where it arose as well as the line",
        )

    def parse_known_args(self, args=None, namespace=None):
        """As argparse's; `command` reads ``--traceback``, no record of options has it."""
        found, rest = super().parse_known_args(args, namespace)
        vars(found).pop(argparse.SUPPRESS, None)
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Print the message and end with status 2."""
        self.exit(2, f"{self.prog}: error: {message} (--help lists the options)\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Print a message and end the command: its command line is answered."""
        if message:
            self._print_message(message, sys.stderr)
        raise ParserEnd(status)


def command(program: str) -> Callable[[Callable], Callable[[Sequence[str] | None], int]]:
    """Make a function of the arguments a command.

    Args:
        program: with what its line on stderr begins.

    Returns:
        A decorator. The function takes the arguments without the program's name and returns None
        or an exit status; the command takes them too, by default those of the process, and always
        returns a status.
    """

    def wrap(main: Callable[[list[str]], int | None]) -> Callable[[Sequence[str] | None], int]:
        @functools.wraps(main)
        def run(arguments: Sequence[str] | None = None) -> int:
            given = list(sys.argv[1:] if arguments is None else arguments)
            own = given[: given.index("--")] if "--" in given else given
            show_tracebacks(TRACEBACK in own)
            ended: list[int] = []

            def action() -> None:
                _keep_streams()
                ended.append(main(given) or 0)
                sys.stdout.flush()

            with _terminated_as_interrupted():
                return exit_status(program, action) or ended[0]

        return run

    return wrap


class _Lasting(io.FileIO):
    """A standard stream that goes on as /dev/null when its reader has gone."""

    def write(self, content) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(content)


def _keep_streams() -> None:
    """Give this process streams that outlive their readers; a closed one becomes /dev/null.

    Streams that someone else has put in their place (a test, a notebook) stay.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # else the first file that is opened would be taken for the stream
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None or stream is getattr(sys, f"__{name}__"):
            lasting = _lasting(stream, number)
            setattr(sys, name, lasting)
            setattr(sys, f"__{name}__", lasting)


def _lasting(stream: TextIO | None, number: int) -> TextIO:
    """The same stream, of a file that lasts."""
    if stream is None:
        return open(os.devnull, "w")  # noqa: SIM115 (as long as the process)
    if isinstance(getattr(stream.buffer, "raw", stream.buffer), _Lasting):
        return stream
    stream.flush()
    raw = _Lasting(number, "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM raises inside of the block; in processes forked there it ends them, as always."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    if before in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated


_held: list[set[signal.Signals]] = []
"""What was blocked before a fork; one that comes during it would be lost in the child."""


def _hold_sigterm() -> None:
    _held.append(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))


def _release_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.pop())


def _forget_sigterm() -> None:
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release_sigterm()


os.register_at_fork(
    before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_forget_sigterm
)
