"""A run owns its folder, and only what is its own: docs/training.md names these tests."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from sot_paddle import atomic
from sot_paddle.deploy import export_command
from sot_paddle.train import (
    checkpointing,
    folder_lock,
    outcome,
)
from sot_paddle.train.trainer import ExactTrainer
from tests.sot_paddle.train.run_output import content_of, in_process
from tests.sot_paddle.train.tiny_run import STEPS

AFRESH = "--overwrite_output_dir"


# one at a time


def test_an_export_into_a_folder_in_use_is_told_who_is_at_work(tmp_path, monkeypatch):
    folder = tmp_path / "there"
    monkeypatch.setattr(export_command, "open_trained", lambda *_, **__: SimpleNamespace(notes=()))
    monkeypatch.setattr(export_command, "export", lambda *_, **__: pytest.fail("wrote"))
    options = export_command._parser().parse_args(["m", str(folder)])
    who = f"{folder} is in use by another run"
    with folder_lock.hold_beside(folder), pytest.raises(ValueError, match=who):
        export_command._run(options)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--fusion", "x"), "fusion must be one of"),
        (("--data_dir", "nowhere"), "does not exist"),
        (("--num_train_epochs", "0.01", "--max_steps", "-1"), "make no step"),
        (("--warmup_steps", "99"), "warmup_steps must be between"),
    ],
)
def test_nothing_is_cleared_for_a_run_that_cannot_be(tiny, done, flags, said):
    before = content_of(done)
    assert said in tiny.refused(done, *STEPS, AFRESH, *flags)
    assert content_of(done) == before


def test_a_refused_continuation_changes_nothing(tiny, done):
    """Predictions and exports of the folder obey its run.json: length, padding, lower case."""
    before = content_of(done)
    line = tiny.refused(done, *STEPS, "--max_seq_length", "12")
    assert "other options (max_seq_length: 20 there, 12 now" in line
    assert content_of(done) == before


def test_an_evaluation_leaves_what_the_training_says_of_itself(tiny, done, capfd):
    before = content_of(done)
    flags = _evaluation(tiny, done, "--max_seq_length", "12")
    assert in_process("train_glue")(flags) == 0
    capfd.readouterr()
    after = content_of(done)
    assert after["run.json"] == before["run.json"]
    assert after["metrics.json"] == before["metrics.json"]
    assert json.loads(after["evaluation.json"])["options"]["max_seq_length"] == 12
    tiny.done(done, *STEPS, AFRESH)
    assert "evaluation.json" not in content_of(done)


# a full disk


@pytest.mark.parametrize(
    ("name", "nth"),
    [("model.safetensors", 2), ("best.json", 1), ("metrics.json", 1)],
)
def test_a_full_disk_leaves_what_was_saved_and_the_run_goes_on(
    tiny, finished, tmp_path, monkeypatch, name, nth
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        written = _full_disk_at(patch, out, name, nth)
        line = tiny.refused(out, *STEPS)
    assert written[0] == nth, "the disk was never full"
    assert "No space left on device" in line
    assert not list(out.rglob(".writing-*"))
    there = checkpointing.list_checkpoints(out)
    assert there
    assert all(checkpointing.is_whole(folder) for folder in there)
    tiny.done(out, *STEPS)
    for file in ("last/model.safetensors", "best/model.safetensors", "last/state.json"):
        assert (out / file).read_bytes() == (finished / file).read_bytes()


def _full_disk_at(patch: pytest.MonkeyPatch, root: Path, name: str, nth: int) -> list[int]:
    """Let the nth write of a file of this name below a folder find no space."""
    original, count = io.open, [0]

    def opened(file, mode="r", *arguments, **options):
        handle = original(file, mode, *arguments, **options)
        there = Path(file).name if isinstance(file, str | Path) else ""
        named = there == name or there.startswith(f"{atomic.WRITING}{name}-")
        if not set(mode) & set("wx") or not named or not str(file).startswith(str(root)):
            return handle
        count[0] += 1
        return _Full(handle) if count[0] == nth else handle

    patch.setattr(builtins, "open", opened)
    patch.setattr(io, "open", opened)
    return count


class _Full:
    """A file whose writes find no space."""

    def __init__(self, handle) -> None:
        self._handle = handle

    def __getattr__(self, name):
        return getattr(self._handle, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._handle.close()

    def write(self, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# best/


def _cut(best: Path) -> None:
    (best / "model.safetensors").write_bytes(b"x")


def _flip(best: Path) -> None:
    content = bytearray((best / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (best / "model.safetensors").write_bytes(content)


@pytest.mark.parametrize("damage", [_flip, shutil.rmtree], ids=["one bit", "nothing left"])
def test_a_damaged_best_is_rebuilt(tiny, done, finished, damage):
    (done / "metrics.json").unlink()
    damage(done / "best")
    tiny.done(done, *STEPS)
    best = json.loads((done / "metrics.json").read_text(encoding="utf-8"))["best"]
    assert checkpointing.is_whole(done / "best")
    assert best["step"] == str(json.loads((done / "best" / "best.json").read_bytes())["step"])
    weights = "best/model.safetensors"
    assert (done / weights).read_bytes() == (finished / weights).read_bytes()


def test_a_best_that_cannot_be_rebuilt_is_not_named(tiny, tmp_path, monkeypatch):
    """Its checkpoint is gone: the best of what is there is named, and a line says so."""
    scores = iter([0.9, 0.8, 0.7])
    monkeypatch.setattr(outcome.Evaluator, "scores", lambda *_: {"acc": next(scores)})
    flags = ("--max_steps", "3", "--eval_steps", "1", "--save_steps", "1")
    flags += ("--save_total_limit", "1")
    out, best = tmp_path / "out", tmp_path / "out" / "best"
    assert "best: step 1 acc 0.9000" in tiny.done(out, *flags)
    _cut(best)
    err = tiny.done(out, *flags)
    assert "the weights of step 1 (acc 0.9000) are no longer there" in err
    assert "best: step 3 acc 0.7000" in err
    assert checkpointing.is_whole(best)
    assert json.loads((best / "best.json").read_bytes())["step"] == 3
    assert json.loads((out / "metrics.json").read_bytes())["best"]["step"] == "3"


def _evaluation(tiny, out: Path, *more: str) -> list[str]:
    return [flag for flag in tiny.command(out, *more) if flag != "--do_train"]


def test_an_evaluation_of_all_checkpoints_leaves_best_alone(tiny, done, monkeypatch, capfd):
    """Of other data, say, on which another step is the best; it is named, and predicts."""
    before = content_of(done / "best")
    kept = str(json.loads(before["best.json"])["step"])
    monkeypatch.setattr(outcome.Evaluator, "scores", lambda _, step: {"acc": float(step != kept)})
    flags = _evaluation(tiny, done, "--eval_all_checkpoints")
    assert in_process("train_glue")(flags) == 0
    assert f"best stays: it holds step {kept}" in capfd.readouterr().err
    assert content_of(done / "best") == before
    assert json.loads((done / "evaluation.json").read_bytes())["best"]["step"] != kept


def test_evaluation_leaves_best_alone_and_refuses_damaged_weights(tiny, done, capfd):
    before = content_of(done / "best")
    flags = _evaluation(tiny, done)
    for folder in checkpointing.list_checkpoints(done):
        if folder.name == f"checkpoint-{json.loads(before['best.json'])['step']}":
            shutil.rmtree(folder)
    assert in_process("train_glue")(flags) == 0
    assert content_of(done / "best") == before
    for folder in (*checkpointing.list_checkpoints(done), done / "best"):
        _cut(folder)
    capfd.readouterr()
    assert in_process("train_glue")(flags) == 2
    assert "is damaged, and" in capfd.readouterr().err


# signals


@pytest.mark.parametrize(
    ("kind", "sent", "status"), [("text", signal.SIGINT, 130), ("images", signal.SIGTERM, 143)]
)
def test_a_signal_finishes_the_step_saves_and_states_itself(
    request, tmp_path, monkeypatch, sent, status, kind
):
    started = request.getfixturevalue("tiny" if kind == "text" else "images")
    handler = signal.getsignal(sent)
    three = ("--max_steps", "3") if kind == "text" else ("--max-steps", "3")
    with monkeypatch.context() as patch:
        step = ExactTrainer.training_step

        def signalled(trainer, *arguments, **options):
            if trainer.state.global_step == 1:
                os.kill(os.getpid(), sent)
            return step(trainer, *arguments, **options)

        patch.setattr(ExactTrainer, "training_step", signalled)
        ended, err = started.start(tmp_path / "out", *three)
    assert (ended, "stopped after step 2, saved in" in err) == (status, True), err
    assert signal.getsignal(sent) is handler
    started.done(tmp_path / "out", *three)
    started.done(tmp_path / "whole", *three)
    for file in ("last/model.safetensors", "last/optimizer.safetensors"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
