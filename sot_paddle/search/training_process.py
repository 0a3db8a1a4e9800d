"""One run of a training command in a process and a folder of its own, from outside.

What is known of it: its exit status, the lines it prints, ``metrics.json``. The command itself
continues a run that was interrupted, so a run that was begun is simply started again.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sot_paddle.failures import INTERRUPTED, REFUSED, TERMINATED, Interrupted
from sot_paddle.reading import read_json
from sot_paddle.train import folder_lock
from sot_paddle.train.checkpointing import POINTER

OUTPUT, LOG = "run", "output.log"
"""In a training's folder: the command's own output folder, and what it printed."""

PATIENCE = 120.0
"""Seconds in which a run that an earlier search left behind has to end."""

_EVALUATION = re.compile(r"step (\d+)/(\d+) epoch [\d.]+ ([^\s:]+): (\S+ \S+(?: \S+ \S+)*)")
_POLL = 0.2  # seconds
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux' prctl


@dataclass(frozen=True)
class Evaluation:
    """Scores of the development set in the middle of a run, as printed (four decimals).

    Attributes:
        step: optimizer steps done.
        steps: optimizer steps of the whole run.
        scores: by name.
    """

    step: int
    steps: int
    scores: Mapping[str, float]


class Refused(Exception):
    """The command ended with status 2.

    Args:
        reason: the line it printed last.
        begun: whether the run had begun, so that not its options are what is wrong (a loss that is
            not finite, no space).
    """

    def __init__(self, reason: str, *, begun: bool) -> None:
        super().__init__(reason)
        self.begun = begun


Watch = Callable[[Evaluation], bool]
"""Sees each evaluation once, in order; True ends the run after the step it is in."""


@dataclass(frozen=True)
class Training:
    """A run of a training command.

    Attributes:
        tool: the script.
        arguments: its command line without the output folder.
        folder: of this run alone.
    """

    tool: Path
    arguments: Sequence[str]
    folder: Path

    def metrics(self) -> dict[str, Any] | None:
        """What metrics.json says; None before the run is finished."""
        path = self.folder / OUTPUT / "metrics.json"
        if not path.is_file():
            return None
        content = read_json(path)
        return content if content.get("finished") else None

    def run(self, watch: Watch | None = None) -> dict[str, Any] | None:
        """Run it, or go on with it, to its end; a finished run is not started again.

        Returns:
            The content of metrics.json; None when `watch` ended the run before it was written.

        Raises:
            Refused: the command ended with status 2.
            Interrupted: Ctrl-C or SIGTERM came; the command was asked to save first.
            ValueError: the command crashed or was killed, or another process is in its folder.
        """
        finished = self.metrics()
        if finished is not None:
            return finished
        self.folder.mkdir(parents=True, exist_ok=True)
        watched = _Watched(self.folder / LOG, watch)
        if watched.is_to_end():
            return None
        _wait_until_free(self.folder / OUTPUT)
        ended = self._run_process(watched)
        finished = self.metrics()
        if finished is None and not ended:
            raise ValueError(f"{self._named()} ended with status 0 and wrote no metrics.json")
        return finished

    def _run_process(self, watched: _Watched) -> bool:
        """Run the process; returns whether what watches ended it."""
        out = self.folder / OUTPUT
        command = [sys.executable, str(self.tool), *self.arguments, "--output_dir", str(out)]
        stop = False
        with open(self.folder / LOG, "ab") as log:
            process = subprocess.Popen(  # noqa: S603 (a tool of this project)
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it through this process alone
                preexec_fn=_die_with_parent(),
            )
            try:
                while process.poll() is None:
                    if not stop and watched.is_to_end():
                        stop = True
                        process.terminate()
                    time.sleep(_POLL)
            finally:
                _end(process)
        stop = stop or watched.is_to_end()
        asked = stop and process.returncode in (*STOPPED, -signal.SIGTERM)
        if process.returncode and not asked:
            self._fail(process.returncode)
        return stop

    def _fail(self, status: int) -> NoReturn:
        last = _last_line(self.folder / LOG)
        if status == REFUSED:
            raise Refused(last, begun=(self.folder / OUTPUT / "run.json").is_file())
        if status in STOPPED:
            raise Interrupted(f"{self._named()} was interrupted; {_AGAIN}")
        if status < 0:
            name = signal.Signals(-status).name
            raise ValueError(f"{self._named()} was killed by {name} (no memory left?); {_AGAIN}")
        raise ValueError(f"{self._named()} crashed with status {status}: {last}")

    def _named(self) -> str:
        return f"{self.tool.name} in {self.folder}"


def remove_weights(folder: Path) -> None:
    """Remove the checkpoints of a training's folder; what it says of its scores stays."""
    out = folder / OUTPUT
    (out / POINTER).unlink(missing_ok=True)
    for path in (*out.glob("checkpoint-*"), out / "best"):
        shutil.rmtree(path, ignore_errors=True)


STOPPED = (INTERRUPTED, TERMINATED)
_AGAIN = "run the same command again to continue"


def scores_by_step(metrics: Mapping[str, Any], name: str) -> dict[int, float]:
    """One score at every evaluation of a finished run, from what its metrics.json holds.

    Returns:
        Optimizer steps to the score, in order; NaN where it was not finite.

    Raises:
        ValueError: the run was not evaluated, or has no score of that name.
    """
    evaluations = metrics.get("evaluations") or {}
    if not evaluations:
        raise ValueError("the runs are not evaluated: they need a development set")
    known = next(iter(evaluations.values()))
    if name not in known:
        raise ValueError(f"the runs have no score {name!r}; they have {', '.join(known)}")
    found = {int(step): scores[name] for step, scores in evaluations.items() if step.isdigit()}
    return {step: math.nan if found[step] is None else found[step] for step in sorted(found)}


class _Watched:
    """The log of a run, whose evaluations a watch sees as they come, a repeated step once."""

    def __init__(self, path: Path, watch: Watch | None) -> None:
        self._path, self._watch, self._place, self._last = path, watch, 0, 0

    def is_to_end(self) -> bool:
        """Show the watch what is new; whether it ends the run."""
        return self._watch is not None and any(map(self._watch, self._new()))

    def _new(self) -> list[Evaluation]:
        if not self._path.is_file():
            return []
        with open(self._path, "rb") as stream:
            stream.seek(self._place)
            content = stream.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._place += len(whole)
        new = []
        for line in whole.decode("utf-8", "replace").splitlines():
            match = _EVALUATION.fullmatch(line.strip())
            if match is None or int(match[1]) <= self._last:
                continue
            self._last = int(match[1])
            words = match[4].split()
            scores = dict(zip(words[::2], map(float, words[1::2]), strict=True))
            new.append(Evaluation(self._last, int(match[2]), scores))
        return new


def _wait_until_free(folder: Path) -> None:
    """Let the run of a search that was killed save and end."""
    deadline, said = time.monotonic() + PATIENCE, False
    while True:
        try:
            folder_lock.refuse_held(folder)
            return
        except ValueError:
            if time.monotonic() > deadline:
                raise
        if not said:
            print(f"waiting for the run that still saves in {folder}", file=sys.stderr, flush=True)
            said = True
        time.sleep(_POLL)


def _die_with_parent() -> Callable[[], None]:
    """What a child does first: ask for SIGTERM when this process ends, however it ends (Linux)."""
    library, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def ask() -> None:
        library.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it ended in between
            os._exit(TERMINATED)

    return ask


def _end(process: subprocess.Popen) -> None:
    """Wait for a process; when it has to be ended early, let it save. Each Ctrl-C asks again."""
    if process.poll() is not None:
        return
    process.terminate()
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            process.terminate()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
