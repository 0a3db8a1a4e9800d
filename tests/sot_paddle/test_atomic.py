"""What is replaced is the old or the new at every instant, however the process ends."""

from __future__ import annotations

import errno
import os
import shutil
import typing
from pathlib import Path

import pytest

from sot_paddle import atomic
from sot_paddle.train import folder_lock


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


def _at(count: int, patch: pytest.MonkeyPatch, end, *, exchange: bool) -> list[int]:
    """End this process at the count-th change of names; returns the number of changes so far."""
    calls = [0]

    def counted(original):
        def change(*arguments, **options):
            calls[0] += 1
            if calls[0] == count:
                end()
            result = original(*arguments, **options)
            calls[0] += 1
            if calls[0] == count:
                end()
            return result

        return change

    patch.setattr(atomic.os, "replace", counted(os.replace))
    patch.setattr(atomic.shutil, "rmtree", counted(shutil.rmtree))
    patch.setattr(Path, "unlink", counted(Path.unlink))
    patch.setattr(atomic, "_exchange", counted(atomic._exchange) if exchange else lambda *_: False)
    return calls


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


def _new_folder(path: Path) -> None:
    with folder_lock.hold_beside(path), atomic.atomic_directory(path) as folder:
        _write(folder / "a", "new")
        _write(folder / "b", "new")


def _new_files(path: Path) -> None:
    beside = path.with_name(f"{path.name}.manifest.json")
    with folder_lock.hold_beside(path), atomic.atomic_files(path, beside) as folder:
        _write(folder / path.name, "new")
        _write(folder / beside.name, "new")


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "renamed twice"])
@pytest.mark.parametrize("how", ["killed", "interrupted"])
@pytest.mark.parametrize("write", [_new_folder, _new_files])
def test_what_is_replaced_is_old_or_new_whenever_it_ends(
    tmp_path, monkeypatch, write, how, exchange
):
    path, folder = tmp_path / "x", write is _new_folder
    ends = 0
    for count in range(1, 99):
        shutil.rmtree(tmp_path)
        if folder:
            _write(path / "a", "old")
            _write(path / "b", "old")
        else:
            _write(path, "old")
            _write(tmp_path / "x.manifest.json", "old")

        def interrupt() -> typing.NoReturn:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            end = (lambda: os._exit(9)) if how == "killed" else interrupt
            _at(count, patch, end, exchange=exchange)
            if how == "killed":
                ended = not _in_child(lambda: write(path))
            else:
                ended = False
                try:
                    write(path)
                except KeyboardInterrupt:
                    ended = True
        if not exchange:
            with folder_lock.hold_beside(path):  # as the next command does
                pass
        if folder:
            assert [p.read_text("utf-8") for p in (path / "a", path / "b")] in (
                ["old", "old"],
                ["new", "new"],
            ), count
        else:
            there = [path.read_text("utf-8")]
            beside = tmp_path / "x.manifest.json"
            there += [beside.read_text("utf-8")] if beside.exists() else []
            assert len(set(there)) == 1, count
        if not ended:
            break
        ends += 1
        write(path)
        names = {p.name for p in tmp_path.iterdir()}
        assert names == ({"x"} if folder else {"x", "x.manifest.json"}), count
    assert ends >= 4


@pytest.mark.parametrize("named", [False, True], ids=["a write", "an open"])
@pytest.mark.parametrize(
    "begin", [atomic.atomic_file, atomic.atomic_directory, atomic.atomic_files]
)
def test_a_full_disk_is_said_of_the_path_that_the_user_named(tmp_path, begin, named):
    path = tmp_path / "x"

    def refuse() -> typing.NoReturn:
        (temporary,) = tmp_path.iterdir()
        where = [str(temporary / "model.json")] if named else []
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *where)

    with pytest.raises(OSError, match=f"No space left on device: '{path}'$"), begin(path):
        refuse()
    assert list(tmp_path.iterdir()) == []


def test_another_file_that_is_refused_keeps_its_name(tmp_path):
    there = pytest.raises(FileNotFoundError, match="'/nothing/there'")
    with there, atomic.atomic_file(tmp_path / "x"):
        os.stat("/nothing/there")


def test_a_lock_that_cannot_be_made_names_what_it_is_for(tmp_path):
    path = tmp_path / "no folder" / "x"
    refused = pytest.raises(FileNotFoundError, match=f"'{path}'$")
    with refused, folder_lock.hold_beside(path):
        pass


def test_a_temporary_name_is_not_opened_through_a_link(tmp_path, monkeypatch):
    """In a folder that others may write, a link under that name would lead to any file."""
    (tmp_path / "theirs").write_text("untouched")
    (tmp_path / "planted").symlink_to("theirs")
    monkeypatch.setattr(atomic, "beside", lambda path, start: tmp_path / "planted")
    with pytest.raises(FileExistsError, match="work"):
        atomic.write_atomically(tmp_path / "work", b"mine")
    assert (tmp_path / "theirs").read_text() == "untouched"
    assert not (tmp_path / "work").exists()


def test_the_next_temporary_name_is_not_known_beforehand(tmp_path):
    """A process of the same id, as in every container, does not meet what a killed one left."""
    numbers = [int(atomic.beside(tmp_path / "x", atomic.WRITING).suffix[1:]) for _ in range(3)]
    assert numbers[1] - numbers[0] != numbers[2] - numbers[1]
    (tmp_path / atomic.beside(tmp_path / "x", atomic.WRITING)).touch()
    atomic.clear_leftovers(tmp_path / "x")
    assert not any(tmp_path.iterdir())
