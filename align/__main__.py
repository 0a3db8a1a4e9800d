"""Run ``python -m align``, the command ``sot-align``; a user's files in a process of their own.

User code can end the process that runs it (``sys.exit(0)``, ``os._exit(0)``, a crash) or never
end. The status of such a process says nothing about the comparison, so a command that executes a
user's files runs in a process of its own, and its status is written to a file when it has reached
its end, within ``--timeout``.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from align import cli
from sot_paddle.cli import REFUSED, TERMINATED
from sot_paddle.runtime import given_environment

_GRACE_S = 10.0
"""In which the process that works has to end after SIGTERM."""
_VERDICT = "SOT_ALIGN_VERDICT"
"""Variable of the working process alone: the file for its status."""
_KEEP_FREED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
"""Variables of glibc: freed memory stays in the working process, which takes fewer page faults."""


def main() -> int:
    """Run the command of this process; what executes a user's files has a process of its own."""
    run = functools.partial(cli.main, sys.argv[1:])
    minutes = cli.parse(sys.argv[1:]).timeout
    return run() if minutes is None else guarded(run, minutes)


def guarded(command: Callable[[], int], limit: float) -> int:
    """Run this program once more, in a process that runs the command; return its status.

    Args:
        limit: minutes in which it has to say its verdict.

    Returns:
        The command's status, or 2 after a line on stderr when its process has not said one.
    """
    verdict_file = os.environ.pop(_VERDICT, "")
    if verdict_file:
        worker_id, status = os.getpid(), command()
        if os.getpid() == worker_id:  # not a process that the user's code forked
            Path(verdict_file).write_text(str(status))
        return status
    terminations: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches both, the worker answers
    signal.signal(signal.SIGTERM, lambda number, _: terminations.append(number))
    with tempfile.TemporaryDirectory(prefix="align_") as folder:
        file = Path(folder, "status")
        tuning = {} if os.environ.get("SOT_PADDLE_TUNE") == "0" else _KEEP_FREED
        worker = subprocess.Popen(  # noqa: S603 (this program)
            [sys.executable, *sys.orig_argv[1:]],
            env={**tuning, **given_environment(), _VERDICT: str(file)},
        )
        try:
            is_late = _wait(worker, 60 * limit, terminations)
        finally:
            worker.kill()
        ended = worker.wait()
        verdict = file.read_text() if file.exists() else ""
    if verdict and (ended >= 0 or is_late):
        return max(int(verdict), ended)
    if terminations:
        return _without_verdict("terminated by SIGTERM", TERMINATED)
    if is_late:
        late = f"no verdict within {limit:g} minutes; --timeout MINUTES allows more"
        return _without_verdict(late, REFUSED)
    how = f"ended with status {ended} (os._exit or sys.exit in your files or a library?)"
    if ended < 0:
        how = f"was killed by {signal.Signals(-ended).name}"
    return _without_verdict(f"no verdict: the process that ran your files {how}", REFUSED)


def _wait(worker: subprocess.Popen, seconds: float, terminations: Sequence[int]) -> bool:
    """Wait for the worker, hand a SIGTERM on to it; return whether its time is over."""
    deadline, is_asked = time.monotonic() + seconds, False
    while worker.poll() is None:
        if terminations and not is_asked:
            worker.terminate()
            deadline, is_asked = time.monotonic() + _GRACE_S, True
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False


def _without_verdict(how: str, status: int) -> int:
    """Say on stderr why there is no verdict; return the status."""
    print(f"align: error: {how}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
