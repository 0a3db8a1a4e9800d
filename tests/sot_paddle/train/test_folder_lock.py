import errno
import fcntl
import json
import os

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
