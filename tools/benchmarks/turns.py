"""The processes of the sides, whose turn it is, and how much the machine did for others."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.benchmarks.serving import SIDES

ROOT = Path(__file__).resolve().parents[2]
PAUSE = 0.25
"""Seconds before each turn; Intel's OpenMP threads spin for 0.2 s after their last work."""

_TUNED = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MKL_DEBUG_CPU_TYPE",
    "FLAGS_use_stride_kernel",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "SOT_PADDLE_TUNE",
    "SOT_PADDLE_NATIVE",
)
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


class Worker:
    """One side in its own process; a context manager.

    Args:
        side: key of `SIDES`.
        threads: ``OMP_NUM_THREADS`` of all but ``installed``, which gets none.
        clock: key of `tools.benchmarks.serving.CLOCKS`.
    """

    def __init__(self, side: str, threads: int, clock: str = "wall") -> None:
        environment = dict(os.environ)
        if side not in (
            "paddle",
            "bf16",
        ):  # the parent may be tuned, and hands its environment down
            environment = {k: v for k, v in environment.items() if k not in _TUNED}
            environment["SOT_PADDLE_TUNE"] = "0"
        if side == "installed":
            environment["SOT_PADDLE_NATIVE"] = "0"
        else:
            environment["OMP_NUM_THREADS"] = str(threads)
        self.side, self._messages = side, tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(  # noqa: S603 (a module of this package)
            [sys.executable, "-W", "ignore", "-m", "tools.benchmarks.serving", side, clock],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._messages.close()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def ask(self, *request: Any) -> Any:
        """Send a request, see `tools.benchmarks.serving`; returns the answer.

        Raises:
            ValueError: the process ended.
        """
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
            if answer := self._process.stdout.readline():
                return json.loads(answer)
        self._process.wait()
        self._messages.seek(0)
        last = (self._messages.read().strip().splitlines() or ["no message"])[-1]
        named = " ".join(
            str(part["name"] if isinstance(part, dict) and "name" in part else part)
            for part in request
        )
        raise ValueError(f"the {self.side} side cannot measure {named}: {last}")


@contextlib.contextmanager
def workers(sides: Sequence[str], threads: int, clock: str = "wall") -> Iterator[dict[str, Worker]]:
    """A process for each side, by name."""
    unknown = [side for side in sides if side not in SIDES]
    if unknown:
        raise ValueError(f"unknown side {unknown[0]!r}; expected one of {', '.join(SIDES)}")
    with contextlib.ExitStack() as stack:
        yield {side: stack.enter_context(Worker(side, threads, clock)) for side in sides}


def processor_line() -> str:
    """Name, family and instruction sets of the processor, as Linux tells them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return "a processor that the system does not name"
    rows = dict(map(str.strip, line.split(":", 1)) for line in text.splitlines() if ":" in line)
    known = [flag for flag in _FLAGS if flag in rows.get("flags", "").split()]
    numbers = f"family {rows.get('cpu family', '?')}, model {rows.get('model', '?')}"
    return f"{rows.get('model name', 'unnamed')} ({numbers}; {' '.join(known)})"


class OtherLoad:
    """What other processes use of the processors, from Linux's counters.

    Args:
        pids: processes whose work is ours, beside this one.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = (os.getpid(), *pids)
        self._began = self._now()

    def share(self) -> float | None:
        """Processors that others used on average since the start, None where nobody knows."""
        if self._began is None or (now := self._now()) is None:
            return None
        busy, ours, at = (new - old for new, old in zip(now, self._began, strict=True))
        return max(0.0, busy - ours) / at if at else None

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds of work of all, of ours, and of the clock."""
        try:
            words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
            ours = sum(_ticks(pid) for pid in self._pids)
        except OSError:
            return None
        busy = sum(map(int, words[:8])) - int(words[3]) - int(words[4])  # without idle, waiting
        tick = os.sysconf("SC_CLK_TCK")
        return busy / tick, ours / tick, time.monotonic()


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # user and system time of all its threads
