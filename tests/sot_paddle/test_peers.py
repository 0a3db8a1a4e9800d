"""A process of a run that dies is named by the others, before gloo's own end of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sot_paddle import peers
from tests.tools import tool_runs

ROOT = Path(__file__).resolve().parents[2]
WATCHING = """
import ctypes, sys, time
sys.path.insert(0, {root!r})
from sot_paddle import peers
peers.GRACE = 0.2
sys.argv[0] = "train_tool.py"
own = peers.name()
peers.watch([(*own[:2], {pid}), own, ("elsewhere", "", {pid})], 1)
print("watching", flush=True)
sys.stdin.readline()
{then}
time.sleep(1)
"""
GLOO = "ctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()"
AGAIN = "; what was saved is intact: run the same command again to continue"


def _watched(end: str, then: str) -> tuple[int, str]:
    """Status and words of a process after another one has ended in some way."""
    other = subprocess.Popen(["sh", "-c", f"read line; {end}"], stdin=subprocess.PIPE)
    code = WATCHING.format(root=str(ROOT), pid=other.pid, then=then)
    watcher = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout.readline() == "watching\n"
    other.stdin.close()  # it ends, and nobody waits for it before the watcher has looked
    _, said = watcher.communicate("\n", timeout=30)
    other.wait(timeout=30)
    return watcher.returncode, said


@pytest.mark.parametrize("then", ["pass", GLOO], ids=["computing", "in gloo"])
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("kill -9 $$", "process 0 was killed by SIGKILL"),
        ("kill -TERM $$", "process 0 was killed by SIGTERM"),
        ("exit 2", "process 0 ended with status 2, and says why in its own log"),
    ],
)
def test_the_end_of_another_process_is_one_line(end, said, then):
    status, line = _watched(end, then)
    assert status == 2
    assert tool_runs.only_line(line) == f"train_tool: {said}{AGAIN}"


def test_a_process_that_is_done_ends_nobody():
    assert _watched("exit 0", "pass") == (0, "")


def test_an_abort_for_another_reason_stays_one():
    status, said = _watched("exit 0", GLOO)
    assert status == -signal.SIGABRT
    assert said.startswith("terminate called without an active exception")


def test_how_a_process_ended_is_unknown_when_somebody_waited_for_it():
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert peers.ending(child) == 3
    os.waitpid(child, 0)
    assert peers.ending(child) is None
