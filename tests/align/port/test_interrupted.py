"""Ctrl-C while worker processes compare rows."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _workers_of(parent: int) -> list[int]:
    """Return the processes that Python's spawn started for a command."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.split(maxsplit=1) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, command in lines if "spawn_main" in command]


@pytest.mark.long
def test_an_interrupt_ends_all_processes_with_one_line() -> None:
    code = (  # a background job ignores Ctrl-C by default
        "import signal, sys\nfrom align import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(cli.main(['--quick', '--case', 'head_*', '--jobs', '2']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not (line := process.stderr.readline()).startswith(("PASS", "FAIL")):
            assert line, "it ended before its first result"
        workers = _workers_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        out, messages = process.communicate(timeout=60)
    finally:
        process.kill()
    assert len(workers) == 2
    assert (process.returncode, out) == (130, "")
    last = messages.splitlines()[-1]
    assert last == "align: error: interrupted; run the same command again"
    time.sleep(1)
    for worker in workers:
        assert not Path(f"/proc/{worker}").exists()
