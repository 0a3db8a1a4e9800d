import errno
import json
import os

import pytest

from sot_paddle.failures import StorageFailure
from sot_paddle.train import checkpointing


def _fill(text="x"):
    def fill(folder):
        (folder / "model.bin").write_text(text, encoding="utf-8")
        (folder / checkpointing.STATE).write_text("{}", encoding="utf-8")

    return fill


def test_a_checkpoint_is_whole_and_the_pointer_names_it(tmp_path):
    path = checkpointing.write_checkpoint(tmp_path, 20, _fill())
    assert path.name == "checkpoint-20"
    assert checkpointing.is_whole(path)
    assert (tmp_path / "last").resolve() == path
    assert checkpointing.last_whole(tmp_path) == path


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "no manifest", "bad manifest"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage):
    good = checkpointing.write_checkpoint(tmp_path, 9, _fill())
    bad = checkpointing.write_checkpoint(tmp_path, 10, _fill("abc"))
    if damage == "truncate":
        (bad / "model.bin").write_text("ab", encoding="utf-8")
    elif damage == "flip":
        (bad / "model.bin").write_text("abd", encoding="utf-8")
    elif damage == "remove":
        (bad / "model.bin").unlink()
    elif damage == "no manifest":
        (bad / checkpointing.MANIFEST).unlink()
    else:
        (bad / checkpointing.MANIFEST).write_text("[1", encoding="utf-8")
    assert checkpointing.last_whole(tmp_path) == good
    checkpointing.settle(tmp_path)
    assert (tmp_path / "last").resolve() == good


def test_checkpoints_are_ordered_by_number(tmp_path):
    for step in (100, 20, 3):
        checkpointing.write_checkpoint(tmp_path, step, _fill())
    (tmp_path / "checkpoint-x").mkdir()
    names = [path.name for path in checkpointing.list_checkpoints(tmp_path)]
    assert names == ["checkpoint-3", "checkpoint-20", "checkpoint-100"]


def test_a_failing_disk_leaves_nothing_half_written(tmp_path):
    checkpointing.write_folder(tmp_path / "best", _fill("old"))

    def full(folder):
        (folder / "model.bin").write_text("half", encoding="utf-8")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageFailure, match="No space left on device; what was saved before"):
        checkpointing.write_folder(tmp_path / "best", full)
    assert (tmp_path / "best" / "model.bin").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_replacing_a_folder(tmp_path):
    checkpointing.write_folder(tmp_path / "best", _fill("old"))
    checkpointing.write_folder(tmp_path / "best", _fill("new"))
    assert (tmp_path / "best" / "model.bin").read_text(encoding="utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_folder_comes_back_when_its_successor_cannot_take_the_name(tmp_path, monkeypatch):
    checkpointing.write_folder(tmp_path / "best", _fill("old"))
    replace = os.replace

    def refuse(source, target):
        if os.fspath(source).rpartition("/")[2].startswith(".writing-best"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StorageFailure, match="what was saved before is intact"):
        checkpointing.write_folder(tmp_path / "best", _fill("new"))
    assert (tmp_path / "best" / "model.bin").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_settle_restores_what_was_moved_aside_and_removes_the_rest(tmp_path):
    checkpointing.write_folder(tmp_path / "best", _fill("old"))
    os.replace(tmp_path / "best", tmp_path / ".discarded-best-77")
    (tmp_path / ".writing-checkpoint-4-77").mkdir()
    os.symlink("checkpoint-4", tmp_path / ".writing-last-77")
    checkpointing.settle(tmp_path)
    assert (tmp_path / "best" / "model.bin").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_prune_keeps_the_newest_and_the_states_of_fewer(tmp_path):
    for step in range(1, 6):
        checkpointing.write_checkpoint(tmp_path, step, _fill())
    checkpointing.prune(tmp_path, keep=4, keep_states=2, state_files=(checkpointing.STATE,))
    found = {path.name: path for path in checkpointing.list_checkpoints(tmp_path)}
    assert sorted(found) == ["checkpoint-2", "checkpoint-3", "checkpoint-4", "checkpoint-5"]
    assert all(checkpointing.is_whole(path) for path in found.values())
    with_state = [name for name, path in found.items() if (path / checkpointing.STATE).exists()]
    assert with_state == ["checkpoint-4", "checkpoint-5"]


def test_what_somebody_put_into_a_folder_stays_when_it_is_replaced_or_pruned(tmp_path):
    for folder in (tmp_path / "best", tmp_path / "checkpoint-1"):
        checkpointing.write_folder(folder, _fill("old"))
        (folder / "notes" / "mine.txt").parent.mkdir()
        (folder / "notes" / "mine.txt").write_text("mine", encoding="utf-8")
    checkpointing.write_folder(tmp_path / "best", _fill("new"))
    assert (tmp_path / "best" / "model.bin").read_text(encoding="utf-8") == "new"
    assert checkpointing.is_whole(tmp_path / "best")
    checkpointing.write_checkpoint(tmp_path, 2, _fill())
    checkpointing.prune(tmp_path, keep=1, keep_states=1, state_files=(checkpointing.STATE,))
    assert not (tmp_path / "checkpoint-1" / "model.bin").exists()
    for name in ("best", "checkpoint-1"):
        assert (tmp_path / name / "notes" / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_state_file_that_the_manifest_forgot_does_not_count(tmp_path):
    path = checkpointing.write_checkpoint(tmp_path, 1, _fill())
    manifest = json.loads((path / checkpointing.MANIFEST).read_text(encoding="utf-8"))
    del manifest["files"][checkpointing.STATE]
    (path / checkpointing.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    assert checkpointing.is_whole(path)
    assert checkpointing.last_whole(tmp_path) is None


def test_write_text_names_the_file_it_could_not_write(tmp_path):
    with pytest.raises(StorageFailure, match="cannot write .*missing"):
        checkpointing.write_text(tmp_path / "missing" / "a.json", "{}")
