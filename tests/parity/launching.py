"""Starts the processes of a data-parallel run and waits for them; a failure is one clear line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 900
_GRACE_S = 20
_LONGEST = 300  # characters of a log that a message shows


def launcher(processes: int, folder: Path) -> list[str]:
    """Return the command that starts a script in so many processes on the CPU."""
    command = [sys.executable, "-m", "paddle.distributed.launch", "--log_dir", str(folder / "log")]
    return [*command, "--nproc_per_node", str(processes), "--backend", "gloo"]


def run(
    command: list[str], folder: Path, processes: int, settings: Mapping[str, str] | None = None
) -> None:
    """Run the launcher; when it is left early, none of its processes stays behind.

    Args:
        command: begins with that of `launcher`.
        folder: where it runs, and leaves what it prints.
        processes: for what is said when it fails.
        settings: variables of its environment beside ours.

    Raises:
        ValueError: a process died or took too long.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    environment |= settings or {}
    with open(folder / "launch.log", "wb") as log:
        started = subprocess.Popen(  # noqa: S603 (our own worker)
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            status = started.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ValueError(
                f"{processes} processes did not end within {TIMEOUT_S} s: {_last_line(folder)}"
            ) from error
        finally:
            _end(started)
    if status:
        raise ValueError(
            f"the run in {processes} processes ended with status {status}: {_last_line(folder)}"
        )


def _end(launched: subprocess.Popen) -> None:
    """End the launcher and its processes.

    PADDLE: each has a session of its own, and the launcher ends them after Ctrl-C alone.
    """
    launched.send_signal(signal.SIGINT)
    try:
        launched.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        launched.kill()
        launched.wait()


def _last_line(folder: Path) -> str:
    """Return the last line of the last process that printed anything, else of the launcher."""
    logs = [folder / "launch.log", *sorted((folder / "log").glob("workerlog.*"))]
    texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in logs]
    lines = [text.splitlines()[-1] for text in texts if text]
    return lines[-1].strip()[:_LONGEST] if lines else "nothing was printed"
