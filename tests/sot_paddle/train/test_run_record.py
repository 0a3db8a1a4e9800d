import os
from pathlib import Path

import pytest

from sot_paddle.train import checkpointing, folder_lock, run_folder, run_record
from tests.sot_paddle.train.run_output import glue_config, opened


def _fill(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "model.bin").write_text("x", encoding="utf-8")
    (folder / checkpointing.STATE).write_text("{}", encoding="utf-8")


def _run(root):
    """A folder as a run leaves it."""
    root.mkdir(exist_ok=True)
    run_record.begin(root)
    run_folder.write_entry(root, run_folder.RUN, {})
    checkpointing.write_checkpoint(root, 5, _fill)
    return root


def test_only_what_was_written_is_removed_folders_with_it(tmp_path):
    root = _run(tmp_path / "out")
    assert run_record.read(root) == {
        *("run.json", "last", "checkpoint-5/inner/model.bin", "checkpoint-5/state.json"),
        "checkpoint-5/manifest.json",
    }
    assert run_record.first_foreign(root) is None
    run_record.remove_written(root)
    assert [path.name for path in root.iterdir()] == [run_record.RECORD]
    assert run_record.read(root) == frozenset()


def test_a_pointer_that_is_put_back_is_entered(tmp_path):
    """Killed between a checkpoint and its pointer, continued, and killed before the next one."""
    root = _run(tmp_path / "out")
    (root / "last").unlink()
    run_record.note(root, ["other.json"])
    assert "last" not in run_record.read(root)
    checkpointing.settle(root)
    assert (root / "last").resolve() == root / "checkpoint-5"
    assert run_record.first_foreign(root) is None
    assert opened(root, glue_config(output_dir=str(root))) == root / "checkpoint-5"


def test_without_a_record_nothing_is_entered_and_everything_is_foreign(tmp_path):
    checkpointing.write_checkpoint(tmp_path, 5, _fill)
    assert run_record.read(tmp_path) is None
    assert run_record.first_foreign(tmp_path) == "checkpoint-5/"
    assert run_record.first_foreign(tmp_path, apart=("checkpoint-5",)) == "last"
    run_record.remove_written(tmp_path)
    assert checkpointing.is_whole(tmp_path / "checkpoint-5")
    assert run_record.read(tmp_path) is None


def test_what_was_pruned_is_forgotten(tmp_path):
    root = _run(tmp_path)
    checkpointing.write_checkpoint(root, 6, _fill)
    checkpointing.prune(root, keep=1, keep_states=1, state_files=())
    run_record.note(root, ["more"])
    assert not any(name.startswith("checkpoint-5") for name in run_record.read(root))


def test_a_manifest_that_a_kill_left_half_written_is_ours_in_every_folder(tmp_path):
    """Pruning rewrites the manifest of a checkpoint that stays; a user's hidden file is foreign."""
    root = _run(tmp_path)
    half, other = (
        root / "checkpoint-5" / n for n in (".writing-manifest.json-7.1", ".writing-x-7.1")
    )
    half.write_text("{")
    assert run_record.first_foreign(root) is None
    other.write_text("mine")
    assert run_record.first_foreign(root) == "checkpoint-5/.writing-x-7.1"
    checkpointing.settle(root)
    assert other.is_file()
    assert not half.exists()


def test_removing_follows_no_link(tmp_path):
    """Also where the record was written before the link was put there."""
    root, elsewhere = _run(tmp_path / "out"), tmp_path / "elsewhere"
    os.replace(root / "checkpoint-5", elsewhere)
    (root / "checkpoint-5").symlink_to(elsewhere)
    run_record.remove_written(root)
    assert sorted(path.name for path in elsewhere.iterdir()) == [
        "inner",
        "manifest.json",
        "state.json",
    ]
    assert (elsewhere / "inner" / "model.bin").is_file()


def test_a_pointer_to_another_place_is_foreign(tmp_path):
    root = _run(tmp_path / "out")
    (root / "last").unlink()
    (root / "last").symlink_to(tmp_path)
    assert run_record.first_foreign(root) == "last"


@pytest.mark.parametrize("content", ["", "[1", "{}", '{"kind": "x", "files": []}', "[]"])
def test_a_damaged_record_is_named(tmp_path, content):
    root = _run(tmp_path / "out")
    (root / run_record.RECORD).write_text(content, encoding="utf-8")
    for action in (run_record.remove_written, run_record.first_foreign):
        with pytest.raises(ValueError, match=r"written\.json .*move what you need out"):
            action(root)
    assert checkpointing.is_whole(root / "checkpoint-5")


def test_a_record_that_is_a_link_is_not_read(tmp_path):
    root = _run(tmp_path / "out")
    os.replace(root / run_record.RECORD, tmp_path / "record.json")
    (root / run_record.RECORD).symlink_to(tmp_path / "record.json")
    with pytest.raises(ValueError, match="is a link"):
        run_record.read(root)


def test_a_kill_before_the_record_was_there_leaves_a_folder_that_can_be_used(tmp_path):
    (tmp_path / f".writing-{run_record.RECORD}-77.0").write_text("{", encoding="utf-8")
    (tmp_path / folder_lock.LOCK).write_text("", encoding="utf-8")
    assert opened(tmp_path, glue_config()) is None
    assert opened(tmp_path, glue_config(overwrite_output_dir=True)) is None
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_discarded_checkpoint_does_not_come_back_when_starting_afresh(tmp_path):
    root = _run(tmp_path / "out")
    os.replace(root / "checkpoint-5", root / ".discarded-checkpoint-5-77")
    assert opened(root, glue_config(overwrite_output_dir=True)) is None
    assert not checkpointing.list_checkpoints(root)


def test_a_removal_that_was_killed_is_finished_by_the_next_one(tmp_path, monkeypatch):
    root, original, calls = _run(tmp_path / "out"), Path.unlink, [0]

    def killed(self, missing_ok=False):
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        original(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        opened(root, glue_config(overwrite_output_dir=True))
    monkeypatch.undo()
    assert 0 < len([path for path in root.rglob("*") if path.is_file()]) < 6
    assert opened(root, glue_config(overwrite_output_dir=True)) is None
    assert {path.name for path in root.iterdir()} == {run_record.RECORD, folder_lock.LOCK}


@pytest.mark.parametrize("kind", ["pipe", "device", "deep", "large", "folder", "bytes"])
def test_a_record_that_is_none_is_refused_and_not_waited_for(tmp_path, kind):
    path = tmp_path / run_record.RECORD
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(10 << 30)  # holds no block of the disk
    else:
        path.write_bytes(b"[" * 10**5 if kind == "deep" else b'{"kind": "\xff"}')
    for ask in (run_record.read, run_record.begin, run_record.first_foreign):
        with pytest.raises(ValueError, match=f"{run_record.RECORD}.*") as caught:
            ask(tmp_path)
        assert len(str(caught.value).splitlines()) == 1
