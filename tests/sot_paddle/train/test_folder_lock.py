import os
import subprocess
import sys
from pathlib import Path

import pytest

from sot_paddle.train import folder_lock

ROOT = Path(__file__).resolve().parents[3]
HOLDER = """
import os, sys
from pathlib import Path
from sot_paddle.train import folder_lock
print("ready", flush=True)
sys.stdin.readline()
with folder_lock.hold(Path(sys.argv[1])):
    if sys.argv[2] == "forks" and os.fork() == 0:  # outlives the one that is killed
        os.close(1)
        os.read(0, 1)
        os._exit(0)
    print("held", flush=True)
    sys.stdin.readline()
"""


def _holder(folder: Path, kind: str = "") -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def _go(process: subprocess.Popen) -> None:
    process.stdin.write("go\n")
    process.stdin.flush()


def test_the_second_one_is_told_who_holds_it_and_nothing_stays(tmp_path):
    folder = tmp_path / "new" / "out"
    with folder_lock.hold(folder):
        said = rf"out is in use by another run \(process {os.getpid()} on \S+, started 20"
        with pytest.raises(ValueError, match=said):
            folder_lock.hold(folder).__enter__()
    with (
        folder_lock.hold_beside(tmp_path / "a"),
        folder_lock.hold_beside(tmp_path / "b"),
        pytest.raises(ValueError, match="a is in use"),
    ):
        folder_lock.hold_beside(tmp_path / "a").__enter__()
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ValueError, match="out is no folder"):
        folder_lock.hold(tmp_path / "out").__enter__()


def test_of_two_runs_that_start_at_once_one_works(tmp_path):
    pair = [_holder(tmp_path) for _ in range(2)]
    for process in pair:
        _go(process)
    words = [process.stdout.readline() for process in pair]
    assert sorted(words) == ["", "held\n"]
    winner, loser = sorted(pair, key=lambda process: words[pair.index(process)] == "")
    assert "is in use by another run (" in loser.communicate(timeout=20)[1]
    assert winner.communicate("end\n", timeout=20)[1] == ""


def test_a_killed_holder_leaves_no_lock_nor_do_its_forks(tmp_path):
    holder = _holder(tmp_path, "forks")
    _go(holder)
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    assert holder.wait() == -9
    with folder_lock.hold(tmp_path):
        pass
    holder.communicate("x")  # ends the fork
