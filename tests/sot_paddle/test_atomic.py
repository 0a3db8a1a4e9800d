"""What is replaced is the old or the new at every instant, however the process ends."""

from __future__ import annotations

import errno
import os
import shutil
import typing
from pathlib import Path

import pytest

from sot_paddle import atomic


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def _at(count: int, patch: pytest.MonkeyPatch, end) -> None:
    """End this process at the count-th moment before or after a change of names."""
    moments = [0]

    def counted(original):
        def change(*arguments, **options):
            moments[0] += 1
            if moments[0] == count:
                end()
            result = original(*arguments, **options)
            moments[0] += 1
            if moments[0] == count:
                end()
            return result

        return change

    patch.setattr(atomic.os, "replace", counted(os.replace))
    patch.setattr(atomic.shutil, "rmtree", counted(shutil.rmtree))
    patch.setattr(Path, "unlink", counted(Path.unlink))


def _in_child(action) -> bool:
    """Run something in a forked process; whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _new_folder(path: Path, text: str) -> None:
    with atomic.atomic_directory(path) as folder:
        _write(folder / "a", text)
        _write(folder / "b", text)


def _new_files(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.manifest.json")
    with atomic.atomic_files(path, beside) as folder:
        _write(folder / path.name, text)
        _write(folder / beside.name, text)


@pytest.mark.parametrize("how", ["killed", "interrupted"])
@pytest.mark.parametrize("write", [_new_folder, _new_files])
def test_what_is_replaced_is_old_or_new_whenever_it_ends(tmp_path, monkeypatch, write, how):
    path, ends = tmp_path / "x", 0

    def interrupt() -> typing.NoReturn:
        raise KeyboardInterrupt

    for count in range(1, 99):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        write(path, "old")
        with monkeypatch.context() as patch:
            _at(count, patch, (lambda: os._exit(9)) if how == "killed" else interrupt)
            if how == "killed":
                is_done = _in_child(lambda: write(path, "new"))
            else:
                try:
                    write(path, "new")
                    is_done = True
                except KeyboardInterrupt:
                    is_done = False
        atomic.clear_leftovers(tmp_path, "x")  # as the next command does
        texts = [found.read_text() for found in tmp_path.rglob("*") if found.is_file()]
        assert path.exists(), count
        assert len(set(texts)) == 1, count
        assert len(texts) == 2 or write is _new_files, count
        assert is_done is (texts == ["new", "new"]) or not is_done, count
        if is_done:
            break
        ends += 1
    assert ends >= 4


@pytest.mark.parametrize(
    "begin", [atomic.atomic_file, atomic.atomic_directory, atomic.atomic_files]
)
def test_a_full_disk_is_said_of_the_path_that_the_user_named(tmp_path, begin):
    path = tmp_path / "x"

    def refuse() -> typing.NoReturn:
        (temporary,) = tmp_path.iterdir()
        where = str(temporary / "model.json")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)

    with pytest.raises(OSError, match=f"No space left on device: '{path}'$"), begin(path):
        refuse()
    assert list(tmp_path.iterdir()) == []


def test_a_result_never_takes_the_place_of_a_device(tmp_path):
    """Renamed over by root, /dev/full would be a file for every program of the machine."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a regular file: '.*pipe'"):
        atomic.write_atomically(tmp_path / "pipe", b"x")
    assert [found.is_fifo() for found in tmp_path.iterdir()] == [True]
