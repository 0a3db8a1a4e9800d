"""A run owns its folder, and only what is its own: docs/training.md names these tests."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sot_paddle import atomic
from sot_paddle.train import (
    checkpointing,
    outcome,
    run_folder,
)
from sot_paddle.train.trainer import ExactTrainer
from tests.sot_paddle.train.run_output import content_of, in_process, opened, write_file
from tests.sot_paddle.train.tiny_run import STEPS

AFRESH = "--overwrite_output_dir"
ROOT = Path(__file__).resolve().parents[3]
FOREIGN = ("thesis.txt", "data/rows.tsv", "seed-1/notes.txt", ".writing-thesis.txt-1.0")


# one at a time


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--fusion", "x"), "fusion must be one of"),
        (("--data_dir", "nowhere"), "which is no folder"),
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
    monkeypatch.setattr(outcome, "score", lambda *_: {"acc": next(scores)})
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
    newest_first = iter([float(step != kept) for step in ("2", "1")])
    monkeypatch.setattr(outcome, "score", lambda *_: {"acc": next(newest_first)})
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


def _checkpoint(root, step):
    moments = checkpointing.TensorFile({"w": np.ones(2)})
    files = [(checkpointing.STATE, b"{}"), (checkpointing.OPTIMIZER, moments)]
    checkpointing.write_checkpoint(root, step, files)
    return root / f"checkpoint-{step}"


def test_which_checkpoint_a_run_begins_at(tmp_path, capsys):
    root = tmp_path / "run"
    assert opened(root) is None
    assert not root.exists()
    root.mkdir()
    run_folder.write_json(root / run_folder.RUN, {})
    first, second = (_checkpoint(root, step) for step in (5, 10))
    assert opened(root) == second
    assert opened(root, resume=str(first)) == first
    assert opened(root, overwrite_output_dir=True) is None
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        opened(root, resume="nowhere")
    with pytest.raises(ValueError, match="checkpoint-5: --overwrite_output_dir would remove it"):
        opened(root, resume=str(first), overwrite_output_dir=True)
    (second / checkpointing.STATE).write_bytes(b"{ }")
    assert opened(root) == first
    assert (
        f"{second} is damaged or has no training state, and is passed over"
        in capsys.readouterr().err
    )


def test_starting_afresh_removes_what_runs_write_and_nothing_else(tiny, tmp_path):
    """Also what a kill left half-done, and no link is followed."""
    out, other, elsewhere = tmp_path / "out", tmp_path / "other", tmp_path / "elsewhere"
    for folder in (out, other):
        tiny.done(folder, *STEPS, "--seed", "7" if folder == other else "3")
    for name in FOREIGN:
        write_file(out / name)
    (out / ".writing-checkpoint-9-77.1").mkdir()
    write_file(out / ".discarded-checkpoint-1-77.1" / "half")
    write_file(elsewhere / "model.bin")
    (out / "checkpoint-77").symlink_to(elsewhere)
    assert "continuing" not in tiny.done(out, *STEPS, "--seed", "7", AFRESH)
    names = [{n for n in content_of(place) if not n.startswith("runs/")} for place in (out, other)]
    assert names[0] == names[1] | set(FOREIGN)
    assert all((out / name).read_text("utf-8") == "mine" for name in FOREIGN)
    assert (elsewhere / "model.bin").exists()
    assert len(list((out / "runs").iterdir())) == 1
    weights = [(place / "last" / "model.safetensors").read_bytes() for place in (out, other)]
    assert weights[0] == weights[1]


def test_a_folder_of_something_else_is_refused(tiny, tmp_path):
    for name in ("thesis.txt", "best/model.bin", "checkpoint-500/a"):
        write_file(tmp_path / name)
        before = content_of(tmp_path)
        for more in ((), (AFRESH,)) if name != "thesis.txt" else ((),):
            assert "holds no run of this tool" in tiny.refused(tmp_path, *STEPS, *more)
            assert content_of(tmp_path) == before


def test_what_a_user_puts_into_a_runs_folders_stays(tiny, done):
    """Also where a checkpoint would be pruned and ``best`` be replaced."""
    shutil.rmtree(done / "checkpoint-2")
    for place in ("best", "checkpoint-1", "runs", "."):
        write_file(done / place / "notes.txt")
    (done / "best" / "model.safetensors").write_bytes(b"x")
    tiny.done(done, *STEPS, "--save_total_limit", "1")
    for place in ("best", "checkpoint-1", "runs", "."):
        assert (done / place / "notes.txt").read_text("utf-8") == "mine"
    assert checkpointing.is_whole(done / "best")


def test_an_evaluation_without_a_trained_head_removes_nothing(tiny, done):
    """The head was in the folder that would have been emptied first."""
    flags = [flag for flag in tiny.command(done, *STEPS, AFRESH) if flag != "--do_train"]
    before = content_of(done)
    assert in_process("train_glue")(flags) == 2
    assert content_of(done) == before


@pytest.mark.parametrize("where", ["best", "", "a link", "config"])
def test_what_a_run_reads_is_not_removed(tiny, done, tmp_path, where):
    flag = "--config_name" if where == "config" else "--model_name_or_path"
    source = done / ("" if where == "" else "best")
    if where == "a link":
        source = tmp_path / "link"
        source.symlink_to(done / "best")
    before = content_of(done)
    assert f"{flag} {source}: --overwrite_output_dir would remove it" in tiny.refused(
        done, *STEPS, AFRESH, flag, str(source)
    )
    assert content_of(done) == before


def test_an_evaluation_does_not_replace_a_users_file(tiny, done, tmp_path):
    other = tmp_path / "other"
    for name in ("metrics.json", "RTE.tsv"):
        write_file(other / name)
        flags = [flag for flag in tiny.command(other) if flag != "--do_train"]
        flags[flags.index("bert_base_mgcrp")] = str(done / "best")
        assert in_process("train_glue")(flags) == 2
        assert content_of(other) == {name: b"mine"}
        (other / name).unlink()


def test_a_second_run_is_refused_by_name_and_changes_nothing(tiny, done):
    before = content_of(done)
    with atomic.hold(done):
        line = tiny.refused(done, *STEPS, AFRESH)
    assert f"{done} is in use by another run: wait" in line
    assert content_of(done) == before


def test_a_lock_leaves_nothing(tmp_path):
    folder = tmp_path / "new" / "out"
    with atomic.hold(folder), pytest.raises(ValueError, match="out is in use by another run"):
        atomic.hold(folder).__enter__()
    with (
        atomic.hold_beside(tmp_path / "a"),
        atomic.hold_beside(tmp_path / "b"),
        pytest.raises(ValueError, match="a is in use"),
    ):
        atomic.hold_beside(tmp_path / "a").__enter__()
    assert not list(tmp_path.iterdir())


HOLDER = """
import sys
from pathlib import Path
from sot_paddle import atomic
with atomic.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_holder_leaves_no_lock(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="in use by another run"):
            atomic.hold(tmp_path).__enter__()
        holder.kill()
        assert holder.wait() == -9
        with atomic.hold(tmp_path):
            pass
