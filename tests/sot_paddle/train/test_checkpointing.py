"""Checkpoints are whole or absent; what resuming needs comes back bit for bit or is refused."""

import errno
import json
import os
import random
import sys

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.cli import NonFinite, TrainingStopped
from sot_paddle.train import checkpointing, exact_state
from sot_paddle.train.checkpointing import OPTIMIZER, STATE, TensorFile
from sot_paddle.train.optimizer import HFAdamW
from sot_paddle.train.trainer import ExactTrainer


def _files(text="x"):
    return [("model.bin", text.encode()), (STATE, b"{}"), (OPTIMIZER, b"")]


def test_a_checkpoint_is_whole_and_the_pointer_names_the_newest(tmp_path):
    for step in (20, 100):
        checkpointing.write_checkpoint(tmp_path, step, _files())
    (tmp_path / "checkpoint-x").mkdir()
    names = [path.name for path in checkpointing.list_checkpoints(tmp_path)]
    assert names == ["checkpoint-20", "checkpoint-100"]
    assert (tmp_path / "last").resolve() == checkpointing.last_whole(tmp_path)
    assert checkpointing.last_whole(tmp_path).name == "checkpoint-100"


@pytest.mark.parametrize("damage", ["flip", "remove", "no manifest", "no state"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage):
    checkpointing.write_checkpoint(tmp_path, 9, _files())
    checkpointing.write_checkpoint(tmp_path, 10, _files("abc"))
    good, bad = checkpointing.list_checkpoints(tmp_path)
    if damage == "flip":
        (bad / "model.bin").write_text("abd", "utf-8")
    else:
        names = {"no manifest": checkpointing.MANIFEST, "no state": STATE, "remove": "model.bin"}
        (bad / names[damage]).unlink()
    assert checkpointing.last_whole(tmp_path) == good
    assert checkpointing.is_whole(bad) == (damage == "no state")
    checkpointing.settle(tmp_path)
    assert (tmp_path / "last").resolve() == good


def test_a_failing_disk_or_a_bad_number_leaves_the_old_folder(tmp_path, monkeypatch):
    def full():
        yield "model.bin", b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refused(source, target):
        if os.fspath(source).rpartition("/")[2].startswith(".writing-best"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replace(source, target)

    replace, best = os.replace, tmp_path / "best"
    checkpointing.write_folder(best, _files("old"))
    with pytest.raises(TrainingStopped, match="No space left on device; what was saved before"):
        checkpointing.write_folder(best, full())
    bad = TensorFile({"w": np.array([1.0, np.inf])})
    with pytest.raises(NonFinite, match=r"w \(in m\.safetensors\) holds a number"):
        checkpointing.write_folder(best, [("m.safetensors", bad)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        with pytest.raises(TrainingStopped, match="what was saved before is intact"):
            checkpointing.write_folder(best, _files("new"))
    assert (best / "model.bin").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    checkpointing.write_folder(best, _files("new"))
    assert (best / "model.bin").read_text(encoding="utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_settle_restores_what_was_moved_aside_and_removes_the_rest(tmp_path):
    checkpointing.write_folder(tmp_path / "best", _files("old"))
    os.replace(tmp_path / "best", tmp_path / ".discarded-best-77.1")
    (tmp_path / ".writing-checkpoint-4-77.1").mkdir()
    os.symlink("checkpoint-4", tmp_path / ".writing-last-77.1")
    (tmp_path / ".writing-thesis-77.1").mkdir()
    checkpointing.settle(tmp_path)
    assert (tmp_path / "best" / "model.bin").read_text(encoding="utf-8") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"best", ".writing-thesis-77.1"}


def test_prune_keeps_the_newest_the_states_of_fewer_and_what_is_a_users(tmp_path):
    for step in range(1, 7):
        checkpointing.write_checkpoint(tmp_path, step, _files())
    (tmp_path / "checkpoint-1" / "notes").mkdir()
    (tmp_path / "checkpoint-1" / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "checkpoint-0").mkdir()
    checkpointing.prune(tmp_path, keep=4)
    left = checkpointing.list_checkpoints(tmp_path)
    assert [int(path.name.removeprefix("checkpoint-")) for path in left] == [0, 1, 3, 4, 5, 6]
    assert all(checkpointing.is_whole(path) for path in left[1:])
    continued = [path for path in left[2:] if checkpointing.is_whole(path, with_state=True)]
    assert continued == left[-2:]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("7.weight/moment1", "no parameter '7.weight'"),
        ("0.weight/moment1", "'0.weight/moment1' does not fit"),
        ("0.weight/moment9", "'0.weight/moment9' does not fit"),
    ],
)
def test_foreign_state_is_refused(name, said):
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    optimizer = HFAdamW(1e-2, parameters=model.parameters())
    with pytest.raises(ValueError, match=said):
        exact_state.restore_optimizer(optimizer, model, {name: np.zeros(3)}, {})


def _draw():
    return random.random(), np.random.rand(), paddle.rand([3]).numpy().tolist()


def test_random_states_survive_json():
    random.gauss(0, 1)  # leaves a cached second value
    np.random.randn()
    saved = json.loads(json.dumps(exact_state.random_states()))
    first = (_draw(), random.gauss(0, 1), np.random.randn())
    assert (_draw(), random.gauss(0, 1), np.random.randn()) != first
    exact_state.restore_random_states(saved)
    assert (_draw(), random.gauss(0, 1), np.random.randn()) == first
    with pytest.raises(ValueError, match="random states of 3 devices"):
        exact_state.restore_random_states({**saved, "paddle": saved["paddle"] * 3})


_CALLS, _OPENED = [], []


def test_a_save_is_600_calls_and_8_opened_files_at_most(tiny, tmp_path, monkeypatch):
    # it stays for the whole process
    sys.addaudithook(lambda event, _: event == "open" and _CALLS and _OPENED.append(event))
    original = ExactTrainer._save_checkpoint

    def counted(frame, event, _):
        if event == "call" and "/sot_paddle/" in frame.f_code.co_filename:
            _CALLS.append(frame.f_code.co_qualname)

    def save(*arguments, **options):
        _CALLS[:], _OPENED[:] = ["begun"], []
        sys.setprofile(counted)
        original(*arguments, **options)
        sys.setprofile(None)
        saves.append((len(_CALLS) - 1, len(_OPENED)))
        _CALLS.clear()

    saves = []
    monkeypatch.setattr(ExactTrainer, "_save_checkpoint", save)
    tiny.done(tmp_path / "out", "--max_steps", "4", "--save_steps", "1", "--save_total_limit", "2")
    assert len(saves) == 4
    assert max(calls for calls, _ in saves) <= 600, saves
    assert saves[0][1] <= 8, saves
