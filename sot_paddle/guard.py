"""What surrounds every command: its parser, its streams, its signals, its exit status.

A tool's ``main`` is a function of the arguments with `command` around it. Whatever escapes it is
one line (:func:`sot_paddle.failures.exit_status`). A reader that goes away early (``... | head``)
changes neither the work nor its status; output that cannot be written is a failure. SIGTERM ends a
command as Ctrl-C does; while a tool still imports what it needs, both end it at once. Standard
library only, so that a tool can use it before all else.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.abc
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from sot_paddle.failures import ParserEnd, Terminated, exit_status, show_tracebacks, told

TRACEBACK = "--traceback"
STATUS = """\
exit status: 0 done; 2 refused or failed, with one line on stderr that says why; 130 after Ctrl-C,
143 after SIGTERM."""

_HOME = re.compile(r"^(--[\w-]+=)~(?=/)")


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
        """As argparse's; `command` reads ``--traceback``, no record of options has it.

        In ``--flag=~/x`` the ``~`` is the home folder, which the shell leaves to the command.
        """
        words, home = sys.argv[1:] if args is None else args, os.path.expanduser("~")
        words = [_HOME.sub(lambda flag: flag[1] + home, word) for word in words]
        found, rest = super().parse_known_args(words, namespace)
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

            with terminated_as_interrupted():
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
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM raises inside of the block; in processes forked there it ends them, as always."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    answers = {signal.SIGTERM: _terminate}
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        answers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.getsignal(number) for number in answers}
    before = {n: one for n, one in before.items() if one not in (signal.SIG_IGN, None)}
    _keep_answering()
    for number in before:
        signal.signal(number, answers[number])
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated


def _end_at_once(number: int, frame: object) -> NoReturn:
    """One line and the documented status: nothing is begun yet, and imports swallow exceptions."""
    line, status = told(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
    with contextlib.suppress(OSError):
        name = Path(sys.argv[0]).stem
        os.write(2, f"{_NAMES.get(name, name)}: {line}\n".encode())
    os._exit(status)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Signals that this module answers end a command at once inside of the block."""
    answered = (_terminate, signal.default_int_handler)
    before = {n: signal.getsignal(n) for n in _ANSWERED}
    ours = threading.current_thread() is threading.main_thread() and (
        before[signal.SIGTERM] is _terminate
    )
    changed = {n: one for n, one in before.items() if ours and one in answered}
    for number in changed:
        signal.signal(number, _end_at_once)
    try:
        yield
    finally:
        for number, one in changed.items():
            signal.signal(number, one)


class _Answering(importlib.abc.MetaPathFinder):
    """PADDLE: importing it replaces the answer to SIGTERM; the next import puts ours back."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.startswith("paddle") and threading.current_thread() is threading.main_thread():
            for number in _ANSWERED:
                if (answer := signal.getsignal(number)) in (_terminate, _end_at_once):
                    signal.signal(number, answer)


def _keep_answering() -> None:
    if not any(isinstance(finder, _Answering) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Answering())


_NAMES = {"__main__": "align: error", "-m": "align: error"}
_ANSWERED = (signal.SIGINT, signal.SIGTERM)
_SCRIPTS = tuple(Path(__file__).resolve().parents[1] / name for name in ("tools", "align"))


def _is_command() -> bool:
    """Whether this process was started as a script of ``tools/`` or as ``python -m align``."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return file is not None and Path(file).resolve().parent in _SCRIPTS


if _is_command() and threading.current_thread() is threading.main_thread():
    _keep_answering()
    for _number in _ANSWERED:
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _end_at_once)


_held: list[set[signal.Signals]] = []
"""What was blocked before a fork; one that comes during it would be lost in the child."""


def _hold_sigterm() -> None:
    _held.append(signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))


def _release_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.pop())


def _forget_sigterm() -> None:
    if signal.getsignal(signal.SIGTERM) in (_terminate, _end_at_once):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _release_sigterm()


os.register_at_fork(
    before=_hold_sigterm, after_in_parent=_release_sigterm, after_in_child=_forget_sigterm
)
