import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sot_paddle.train import folder_lock


def test_the_second_one_is_told_who_holds_it(tmp_path):
    with folder_lock.hold(tmp_path):
        said = json.loads((tmp_path / folder_lock.LOCK).read_text(encoding="utf-8"))
        assert said["pid"] == os.getpid()
        words = rf"process {os.getpid()} on {said['host']}, started {said['started'][:19]}"
        for second in (lambda: folder_lock.hold(tmp_path).__enter__(),) * 2:
            with pytest.raises(ValueError, match=words):
                second()
        with pytest.raises(ValueError, match="wait until it has ended, or choose another"):
            folder_lock.refuse_held(tmp_path)
    folder_lock.refuse_held(tmp_path)
    assert (tmp_path / folder_lock.LOCK).read_text(encoding="utf-8") == ""
    with folder_lock.hold(tmp_path):
        pass


def test_a_folder_without_a_lock_file_is_left_alone(tmp_path):
    folder_lock.refuse_held(tmp_path / "nowhere")
    folder_lock.refuse_held(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_not_there_yet(tmp_path):
    with folder_lock.hold(tmp_path):
        (tmp_path / folder_lock.LOCK).write_text("", encoding="utf-8")
        with pytest.raises(ValueError, match="it has not written its name yet"):
            folder_lock.refuse_held(tmp_path)


def test_a_file_system_without_locks_is_said_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    def without(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    with folder_lock.hold(tmp_path):
        pass
    assert "cannot be locked (No locks available): start no second run" in capsys.readouterr().err


def test_a_link_in_place_of_the_lock_file_is_not_written_through(tmp_path):
    kept = tmp_path / "thesis.txt"
    kept.write_text("mine", encoding="utf-8")
    (tmp_path / folder_lock.LOCK).symlink_to(kept)
    with pytest.raises(OSError, match=folder_lock.LOCK), folder_lock.hold(tmp_path):
        pass
    assert kept.read_text(encoding="utf-8") == "mine"


@pytest.fixture
def in_time():
    """A command that waits for a pipe or a device is ended."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", [folder_lock.LOCK, ".new.lock"])
def test_a_pipe_in_place_of_the_lock_file_is_refused(tmp_path, in_time, name):
    os.mkfifo(tmp_path / name)
    ways = [lambda: folder_lock.hold_beside(tmp_path / "new").__enter__()]
    if name == folder_lock.LOCK:
        ways = [lambda: folder_lock.refuse_held(tmp_path)]
        ways += [lambda: folder_lock.hold(tmp_path).__enter__()]
    for way in ways:
        with pytest.raises(ValueError, match=f"{name}.*regular file"):
            way()
    assert (tmp_path / name).is_fifo()


def test_whatever_stands_in_the_lock_file_is_no_name(tmp_path):
    with folder_lock.hold(tmp_path):
        for content in ("[" * 5000, "5", '{"pid": 1}', "\xff", "x" * 10**6):
            (tmp_path / folder_lock.LOCK).write_text(content, encoding="latin-1")
            with pytest.raises(ValueError, match="it has not written its name yet"):
                folder_lock.refuse_held(tmp_path)


ROOT = Path(__file__).resolve().parents[3]
HOLDER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from sot_paddle.cli import command
from sot_paddle.train import folder_lock

@command("run")
def main(arguments):
    print("ready", flush=True)
    sys.stdin.readline()
    with folder_lock.hold(Path(arguments[0])):
        (Path(arguments[0]) / arguments[1]).touch()
        print("held", flush=True)
        sys.stdin.readline()

sys.exit(main())
"""


def test_of_two_runs_that_start_at_once_one_works_five_times(tmp_path):
    """Real processes; each time the second one ends while the first one is at work."""
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        pair = [_holder(folder, name) for name in "ab"]
        for process in pair:
            assert process.stdout.readline() == "ready\n"
        for process in pair:
            process.stdin.write("go\n")
            process.stdin.flush()
        words = [process.stdout.readline() for process in pair]
        assert sorted(words) == ["", "held\n"]
        winner, loser = sorted(pair, key=lambda process: words[pair.index(process)] == "")
        _, said = loser.communicate(timeout=20)
        assert loser.returncode == 2
        assert said.startswith(f"run: {folder} is in use by another run (")
        assert len(said.splitlines()) == 1
        assert winner.communicate("end\n", timeout=20)[1] == ""
        assert winner.returncode == 0
        assert len([path for path in folder.iterdir() if path.name in "ab"]) == 1


def _holder(folder: Path, name: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(root=str(ROOT)), str(folder), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
