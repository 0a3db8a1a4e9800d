"""What a process of a data-parallel run says when another one of this machine dies.

It would learn it from gloo alone, which ends it with a C++ trace that names neither the process nor
the signal. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sot_paddle.failures import REFUSED

GRACE = 5.0
"""Seconds in which this process may end by itself after another one ended with a status."""

_EXIT_CODE = 49  # field of /proc/PID/stat, counted from the state
_kept: list[object] = []


def name() -> tuple[str, str, int]:
    """By which the others know this process: machine, space of process ids, process id."""
    return socket.gethostname(), os.readlink("/proc/self/ns/pid"), os.getpid()


def watch(names: Sequence[tuple[str, str, int]], rank: int) -> None:
    """End this process with one line and status 2 when another one is killed or fails.

    Those of other machines are not watched. The names are those of every process, by rank.
    """
    for other, (*place, pid) in enumerate(names):
        if other == rank or place != list(names[rank][:2]):
            continue
        with contextlib.suppress(OSError):  # it has ended already, or an old kernel
            seen = os.pidfd_open(pid)
            threading.Thread(target=_follow, args=(other, pid, seen), daemon=True).start()
    _wait_before_abort()


def ending(pid: int) -> int | None:
    """How a child of anyone ended that nobody has waited for yet.

    Returns:
        Its exit status, or minus the signal that killed it; None when the system has forgotten.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return os.waitstatus_to_exitcode(int(text.rpartition(")")[2].split()[_EXIT_CODE]))


def _follow(rank: int, pid: int, seen: int) -> None:
    """Wait for the end of a process."""
    waiting = select.poll()
    waiting.register(seen, select.POLLIN)
    waiting.poll()
    ended = ending(pid)
    if not ended:  # done, or forgotten
        return
    if ended > 0:
        time.sleep(GRACE)
        _end(f"process {rank} ended with status {ended}, and says why in its own log")
    _end(f"process {rank} was killed by {signal.Signals(-ended).name}")


def _end(what: str) -> NoReturn:
    line = f"{what}; what was saved is intact: run the same command again to continue"
    print(f"{Path(sys.argv[0]).stem}: {line}", file=sys.stderr, flush=True)
    os._exit(REFUSED)


def _wait_before_abort() -> None:
    """Let the threads that follow the others speak first.

    PADDLE: gloo throws where nothing catches it when a connection breaks, and C++ then aborts.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libstdc++.so.6")
        handler = ctypes.CFUNCTYPE(None)
        replace = library._ZSt13set_terminatePFvvE  # std::set_terminate(void (*)())
        replace.argtypes, replace.restype = [handler], ctypes.c_void_p
        before: list[int] = []

        def pause() -> None:
            time.sleep(2 * GRACE)
            handler(before[0])()

        _kept.append(handler(pause))  # as long as the process
        before.append(replace(_kept[-1]))
