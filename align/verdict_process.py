"""Run a command that executes a user's files in a process of its own, and require its verdict.

User code can end the process that runs it (``sys.exit(0)``, ``os._exit(0)``, a crash) or never
end. The status of such a process says nothing about the comparison, so the command's own status
comes through a pipe when it has reached its end, within ``--timeout``. This process stays small and
the one that works is a fork of it, with the same arguments, environment and streams.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sot_paddle.failures import REFUSED, TERMINATED, ParserEnd

MINUTES = 30.0
PATIENCE_S = 10.0
"""In which the process that works has to end, after its verdict or when its time is over."""
_GRACE_S = 1.0
"""In which what was started and left behind may end by itself after SIGTERM."""
_VERDICTS = (0, 1)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
_WAITING = (signal.SIGINT, signal.SIGTERM)
"""Signals that wait until both processes are ready for them."""
_FLAG = "--timeout"
_STATUS_DIGITS = 3


def runs_user_code(arguments: Sequence[str]) -> bool:
    """Whether a command line of ``python -m align`` executes a file that the user gives.

    Args:
        arguments: without the program's name.
    """
    specs = (text.partition("=")[0] == "--spec" for text in arguments)
    return arguments[:1] == ["dump"] or any(specs)


def minutes(text: str) -> float:
    """A number of minutes above 0, for argparse."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if value > 0 and math.isfinite(value):
            return value
    raise argparse.ArgumentTypeError(f"expected minutes, a number above 0, got {text!r}")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Give a command the option that `guarded` reads."""
    what = f"end without a verdict after so many minutes [{MINUTES:g}]"
    parser.add_argument(_FLAG, type=minutes, metavar="MINUTES", help=what)


def guarded(command: Callable[[], int], arguments: Sequence[str]) -> int:
    """Run a command in a process of its own.

    Args:
        command: returns its exit status.
        arguments: its command line; what follows ``--timeout`` there is the limit.

    Returns:
        In this process the command's status, or 2, after a line on stderr, when its process ended
        without having said one. In the new process, which returns too, the command's status.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what outlives its own parent stays below this process
    with _signals_wait():
        child = os.fork()
        terminated = _pass_on_signals(child) if child else []
    if not child:
        os.close(reader)
        _end_with(parent)
        return _work(command, _limit(arguments), writer)
    os.close(writer)
    status = _status(child, reader, terminated, arguments)
    if status not in _VERDICTS:
        end_descendants(parent)
    return status


def _status(child: int, reader: int, terminated: list[int], arguments: Sequence[str]) -> int:
    """Wait for the process that works; its status, or 2 and a line."""
    os.set_blocking(reader, False)  # what the child has started may hold the other end still
    said, ended = _wait(child, reader, time.monotonic() + 60 * _limit(arguments))
    if said is not None and (ended is None or ended >= 0):
        return max(said, ended or 0)
    if terminated:
        return _without_verdict("terminated by SIGTERM", TERMINATED)
    if ended is None:
        return _without_verdict(f"{_late(_limit(arguments))}; the process did not answer")
    if ended < 0:
        how = f"was killed by {signal.Signals(-ended).name}"
    else:
        how = f"ended with status {ended} (os._exit or sys.exit in your files or a library?)"
    return _without_verdict(f"no verdict: the process that ran your files {how}")


def _limit(arguments: Sequence[str]) -> float:
    """The minutes that a command line gives; the default where argparse will refuse it."""
    found = MINUTES
    for text, following in itertools.pairwise((*arguments, "")):
        name, has_value, value = text.partition("=")
        if name == _FLAG:
            with contextlib.suppress(argparse.ArgumentTypeError):
                found = minutes(value if has_value else following)
    return found


def _wait(child: int, reader: int, deadline: float) -> tuple[int | None, int | None]:
    """The status that the child has sent, and how it ended; None for what did not come.

    After the deadline the child is asked for a line (SIGALRM); it is killed when it gives none, or
    when it does not end after its verdict.
    """
    said, pause, last = None, 0.001, False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        said = _said(reader) if said is None else said
        if done:
            return said, os.waitstatus_to_exitcode(status)
        now = time.monotonic()
        if not last and (said is not None or now > deadline):
            last, deadline = True, now + PATIENCE_S
            if said is None:
                os.kill(child, signal.SIGALRM)
        elif last and now > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return said, None
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _said(reader: int) -> int | None:
    """The status that the child has sent."""
    with contextlib.suppress(BlockingIOError):
        text = os.read(reader, _STATUS_DIGITS)
        return int(text) if text else None
    return None


def _work(command: Callable[[], int], limit: float, writer: int) -> int:
    """Run the command and say its status."""
    own = os.getpid()

    def late(number: int, frame: Any) -> NoReturn:
        raise TimeoutError(_late(limit))

    signal.signal(signal.SIGALRM, late)
    try:
        status = command()
    except ParserEnd as end:
        status = int(end.code or 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    if os.getpid() == own:  # not in a process that the user's code forked
        os.write(writer, b"%d" % status)
    return status


def _late(limit: float) -> str:
    return f"no verdict within {limit:g} minutes; {_FLAG} MINUTES allows more"


def _without_verdict(how: str, status: int = REFUSED) -> int:
    """Say that there is no verdict, and why."""
    print(f"align: error: {how}", file=sys.stderr)
    return status


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
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, hand_on)
    return came


def _end_with(parent: int) -> None:
    """End this process when its parent is killed (Linux; elsewhere it runs to its end)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(REFUSED)


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(option, value)


def end_descendants(pid: int) -> None:
    """End what a process has started, and what that has started, in whatever session (Linux).

    SIGTERM comes first: Python's tracker of shared memory outlives it, and cleans up.

    Args:
        pid: of the process, which lives on itself.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        asked: set[int] = set()
        deadline = time.monotonic() + _GRACE_S
        while (found := _descendants(pid)) and time.monotonic() < deadline:
            for one in found - asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)
            asked |= found
            time.sleep(0.01)


def _descendants(pid: int) -> set[int]:
    """Processes below one that have not ended."""
    children: dict[int, set[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), set()).add(int(stat.parent.name))
    found, waiting = set(), [pid]
    while waiting:
        new = children.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found
