"""Run a command that executes a user's files in a process of its own, and require its verdict.

User code can end the process that runs it: ``sys.exit(0)``, ``os._exit(0)``, a crash. The status
of such a process says nothing about the comparison, so the command's own status comes through a
pipe when it has reached its end. Standard library only: this process stays small and the one that
works is a fork of it, with the same arguments, environment and streams.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence

COULD_NOT_RUN = 2
_PR_SET_PDEATHSIG = 1  # of Linux's prctl
_WAITING = (signal.SIGINT, signal.SIGTERM)
"""Signals that wait until both processes are ready for them."""


def runs_user_code(arguments: Sequence[str]) -> bool:
    """Whether a command line of ``python -m align`` executes a file that the user gives.

    Args:
        arguments: without the program's name; ``--spec`` may be shortened, as argparse allows.
    """
    return arguments[:1] == ["dump"] or any(text.startswith("--sp") for text in arguments)


def guarded(command: Callable[[], int], arguments: Sequence[str]) -> int:
    """Run a command in a process of its own.

    Args:
        command: returns its exit status: 0, 1 or 2.
        arguments: its command line.

    Returns:
        In this process the command's status, or 2, after a line on stderr, when its process ended
        without having said one. In the new process, which returns too, the command's status.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    with _signals_wait():
        child = os.fork()
        terminated = _pass_on_signals(child) if child else []
    if not child:
        os.close(reader)
        _end_with(parent)
        return _work(command, arguments, writer)
    os.close(writer)
    _, ended = os.waitpid(child, 0)
    os.set_blocking(reader, False)  # what the child has started may hold the other end still
    with contextlib.suppress(BlockingIOError):
        said = os.read(reader, 1)
        if said and os.waitstatus_to_exitcode(ended) >= 0:
            return max(int(said), os.waitstatus_to_exitcode(ended))
    if terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)  # as it would have ended without a second process
    return _without_verdict(os.waitstatus_to_exitcode(ended))


def _work(command: Callable[[], int], arguments: Sequence[str], writer: int) -> int:
    """Run the command and say its status."""
    own = os.getpid()
    try:
        status = command()
    except SystemExit as end:  # argparse: --help, or an option that it refuses
        if end.code != COULD_NOT_RUN and not _asks_for_help(arguments):
            raise
        status = int(end.code or 0)
    if os.getpid() == own:  # not in a process that the user's code forked
        os.write(writer, b"%d" % status)
    return status


def _asks_for_help(arguments: Sequence[str]) -> bool:
    return any(text == "-h" or (len(text) > 2 and "--help".startswith(text)) for text in arguments)


def _without_verdict(status: int) -> int:
    """Say that there is no verdict, and why."""
    how = (
        f"was killed by {signal.Signals(-status).name}"
        if status < 0
        else (f"ended with status {status} (os._exit or sys.exit in your files or a library?)")
    )
    print(f"align: error: no verdict: the process that ran your files {how}", file=sys.stderr)
    return COULD_NOT_RUN


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_on_signals(child: int) -> list[int]:
    """Ctrl-C reaches both processes, and the child answers it; SIGTERM is handed on.

    Returns:
        The SIGTERMs that have come, filled as they come.
    """
    came: list[int] = []

    def hand_on(number: int, frame: object) -> None:
        came.append(number)
        os.kill(child, number)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, hand_on)
    return came


def _end_with(parent: int) -> None:
    """End this process when its parent is killed (Linux; elsewhere it runs to its end)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(COULD_NOT_RUN)
