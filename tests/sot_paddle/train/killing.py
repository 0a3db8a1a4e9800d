"""Kill a training command again and again, at any moment, and compare what the resumed runs leave.

One process imports everything once and forks a child for every start of the command, so that a
start costs a second. A child gets its signal either from the parent after a random time, or from
itself at a chosen file operation of a save.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE)]


@dataclass(frozen=True)
class Scenario:
    """A command to kill.

    Attributes:
        run: trains into the folder that it is given, returns the exit status.
        files: of a finished run, those that must not depend on having been killed.
    """

    run: Callable[[Path], int]
    files: Sequence[str]

    def digests(self, out: Path) -> dict[str, str]:
        """Digest of every file that is compared."""
        return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in self.files}


def start(scenario: Scenario, out: Path, prepare: Callable[[], None] | None = None) -> int:
    """Fork a child that runs the training command; returns its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        log = os.open(out.parent / f"{out.name}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also when begun with "&"
        if prepare is not None:
            prepare()
        os._exit(scenario.run(out))
    return child


def die_at(operation: str, count: int, sent: signal.Signals) -> Callable[[], None]:
    """Make a child signal itself before the ``count``-th call of a file operation of a save."""

    def prepare() -> None:
        module, name = {
            "tensor": (np, "ascontiguousarray"),
            "checksum": (zlib, "crc32"),
            "sync": (os, "fsync"),
            "replace": (os, "replace"),
            "symlink": (os, "symlink"),
            "rmtree": (shutil, "rmtree"),
        }[operation]
        original, calls = getattr(module, name), [0]

        def counted(*arguments, **options):
            calls[0] += 1
            if calls[0] == count:
                os.kill(os.getpid(), sent)
            return original(*arguments, **options)

        setattr(module, name, counted)

    return prepare


def finish(child: int) -> int | None:
    """Wait for a child: its exit status, None when it was killed."""
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def kill_once(
    draw: random.Random,
    begin: Callable[..., int],
    lifetime: float,
    sent: signal.Signals = signal.SIGKILL,
) -> str | None:
    """Start the command and stop it; returns how, None when it was done before.

    Raises:
        ValueError: it ended with a status that is neither 0 nor that of the signal.
    """
    if draw.random() < 0.5:
        operation = draw.choice(("tensor", "checksum", "sync", "replace", "symlink", "rmtree"))
        count = draw.randint(1, 300 if operation == "tensor" else 12)
        child = begin(die_at(operation, count, sent))
        how = f"inside a save, before {operation} number {count}"
    else:
        child = begin()
        delay = draw.uniform(0.05, 1.1) * lifetime
        time.sleep(delay)
        os.kill(child, sent)
        how = f"after {delay:.2f} s"
    status = finish(child)
    if status not in (None, 0, 128 + sent):
        raise ValueError(f"{sent.name} {how} ended the run with status {status}")
    return None if status == 0 else f"{sent.name} {how}"


def run(prepare: Callable[[Path], Scenario], description: str) -> int:
    """Run until so many kills are done; 0 when every run ended like the uninterrupted one.

    Args:
        prepare: makes the data in a folder and returns the command to kill.
        description: for ``--help``.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return stop_runs(prepare, [signal.SIGKILL] * options.kills, options.seed)


def stop_runs(
    prepare: Callable[[Path], Scenario], signals: Sequence[signal.Signals], seed: int
) -> int:
    """Stop runs with each of the signals, one after the other; see :func:`run`."""
    draw = random.Random(seed)
    left = list(signals)
    with tempfile.TemporaryDirectory(prefix="kill_resume_") as folder:
        root = Path(folder)
        scenario = prepare(root)
        began = time.monotonic()
        if finish(start(scenario, root / "whole")) != 0:
            print((root / "whole.log").read_text(encoding="utf-8"))
            return 1
        lifetime = time.monotonic() - began
        expected, runs, saves = scenario.digests(root / "whole"), 0, 0
        while left:
            out = root / f"run{runs}"
            runs += 1
            for _ in range(draw.randint(1, 5)):
                how = kill_once(draw, partial(start, scenario, out), lifetime, left[-1])
                if how is None:
                    break
                left.pop()
                saves += "inside" in how
                there = sorted(path.name for path in out.glob("*")) if out.is_dir() else []
                done = len(signals) - len(left)
                print(f"kill {done}, run {runs}: {how}; left: {' '.join(there)}", flush=True)
                if not left:
                    break
            status = finish(start(scenario, out))
            found = scenario.digests(out) if status == 0 else {}
            if found != expected:
                odd = [name for name in expected if found.get(name) != expected[name]]
                print(f"run {runs} ended with status {status}; differs in {', '.join(odd)}")
                print((root / f"{out.name}.log").read_text(encoding="utf-8"))
                return 1
        told = f"{len(signals)} kills ({saves} inside a save) in {runs} runs"
        print(f"{told}: every run bit-identical")
    return 0
