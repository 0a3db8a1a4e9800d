"""What a user has in and around an output folder survives every run, refused or not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.train import checkpointing, folder_lock, run_folder
from tests.sot_paddle.train.run_output import content_of, in_process, opened, write_file
from tests.sot_paddle.train.tiny_run import STEPS

ROOT = Path(__file__).resolve().parents[3]
AFRESH = "--overwrite_output_dir"
FOREIGN = ("thesis.txt", "data/rows.tsv", "seed-1/notes.txt", ".writing-thesis.txt-1.0")


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
    for resume, said in (("never", "drop --resume never"), ("nowhere", "not a whole checkpoint")):
        with pytest.raises(ValueError, match=said):
            opened(root, resume=resume)
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


def test_seeds_have_folders_of_their_own(tiny, tmp_path):
    out = tmp_path / "out"
    tiny.done(out, "--max_steps", "1", "--seeds", "1,2")
    before = content_of(out)
    assert "holds runs with --seeds" in tiny.refused(out, *STEPS)
    assert "would remove it" in tiny.refused(
        out, *STEPS, "--seeds", "1,2", AFRESH, "--model_name_or_path", str(out / "seed-2")
    )
    assert content_of(out) == before, "the first seed's folder was emptied before the second check"
    write_file(tmp_path / "other" / "run.json", "{}")
    assert "holds run.json, which no run with --seeds wrote" in tiny.refused(
        tmp_path / "other", *STEPS, "--seeds", "1,2"
    )
    killed = tmp_path / "killed"  # before a run.json was there
    write_file(killed / "seed-1" / folder_lock.LOCK, "")
    assert opened(killed, seeds=(1, 2)) is None


def test_a_second_run_is_refused_by_name_and_changes_nothing(tiny, done):
    before = content_of(done)
    with folder_lock.hold(done):
        line = tiny.refused(done, *STEPS, AFRESH)
    assert f"{done} is in use by another run (process " in line
    assert content_of(done) == before


def test_the_lock_holds_from_the_first_file_to_the_last(tiny, tmp_path, monkeypatch):
    """A run that begins when another is about to write its metrics is refused."""
    seen, out = [], tmp_path / "out"
    original = run_folder.write_json

    def noted(path, content):
        with pytest.raises(ValueError, match="in use by another run"):
            folder_lock.hold(out).__enter__()
        seen.append(path.name)
        original(path, content)

    monkeypatch.setattr(run_folder, "write_json", noted)
    tiny.done(out, *STEPS, "--head", "plain")
    assert (seen[0], seen[-1]) == ("run.json", "metrics.json")
    assert not (out / folder_lock.LOCK).exists()


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


HOLDER = """
import sys
from pathlib import Path
from sot_paddle.train import folder_lock
with folder_lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_holder_leaves_no_lock(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=rf"in use by another run \(process {holder.pid} on"):
            folder_lock.hold(tmp_path).__enter__()
        holder.kill()
        assert holder.wait() == -9
        with folder_lock.hold(tmp_path):
            pass
