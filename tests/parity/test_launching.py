"""Runs of several processes that fail or hang."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.parity import launching


@pytest.mark.parametrize(
    ("logs", "last"), [(["one\\ntwo", "three\\n"], "three"), (["one", ""], "one"), ([], "unheard")]
)
def test_a_failed_run_is_one_line_with_the_last_one_of_its_processes(logs, last, tmp_path):
    (tmp_path / "log").mkdir()
    code = "import sys; print('unheard')\n"
    for index, text in enumerate(logs):
        code += f"open('log/workerlog.{index}', 'w').write('{text}')\n"
    command = [sys.executable, "-c", code + "sys.exit(3)"]
    with pytest.raises(ValueError, match=f"2 processes ended with status 3: {last}$"):
        launching.run(command, tmp_path, 2)


def _runs(pid: int) -> bool:
    """Whether a process has not ended."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_a_run_that_hangs_is_ended_with_its_processes(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, pathlib, time\n"
        "pathlib.Path(os.environ['PADDLE_TRAINER_ID']).write_text(str(os.getpid()))\n"
        "time.sleep(100)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(launching, "TIMEOUT_S", 15)
    begun = time.monotonic()
    with pytest.raises(ValueError, match="2 processes did not end within 15 s"):
        launching.run([*launching.launcher(2, tmp_path), str(worker)], tmp_path, 2)
    workers = [int((tmp_path / number).read_text()) for number in "01"]
    assert not any(_runs(pid) for pid in workers)
    assert time.monotonic() - begun < 60
