"""What a user has in and around an output folder survives every run, refused or not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sot_paddle.train import checkpointing, folder_lock, run_folder, run_record
from tests.sot_paddle.train.run_output import content_of, write_file
from tests.sot_paddle.train.tiny_run import STEPS

ROOT = Path(__file__).resolve().parents[3]
AFRESH = "--overwrite_output_dir"


def test_the_record_lists_everything_that_a_run_leaves(done):
    listed = run_record.read(done)
    there = {
        path.relative_to(done).as_posix()
        for path in done.rglob("*")
        if path.is_symlink() or path.is_file()
    }
    assert listed == there - {run_record.RECORD, folder_lock.LOCK}
    assert run_record.first_foreign(done) is None
    assert {"RTE.tsv", "last", "best/manifest.json", "checkpoint-2/state.json"} < listed


def test_starting_afresh_leaves_what_a_first_run_leaves(tiny, done, tmp_path):
    """Pruned checkpoints and what a kill left half-done are no obstacle."""
    (done / ".writing-checkpoint-9-77").mkdir()
    write_file(done / ".discarded-checkpoint-1-77" / "half")
    write_file(done / ".writing-written.json-77.0")
    shutil.rmtree(done / "checkpoint-1")
    err = tiny.done(done, *STEPS, AFRESH, "--seed", "7")
    assert "continuing" not in err
    other = tmp_path / "other"
    tiny.done(other, *STEPS, "--seed", "7")
    names = [{n for n in content_of(out) if not n.startswith("runs/")} for out in (done, other)]
    assert names[0] == names[1]
    assert len(list((done / "runs").iterdir())) == 1
    weights = [(out / "last" / "model.safetensors").read_bytes() for out in (done, other)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    "foreign",
    [
        "thesis.txt",
        "checkpoint-2/notes.txt",
        "checkpoint-77/model.bin",
        "best/notes.txt",
        "runs/experiment.txt",
        "runs/vdlrecords.17.log",
        "data/",
        ".writing-thesis",
        ".discarded-chapter-2",
        ".writing-thesis.txt-1.0",
    ],
)
def test_starting_afresh_is_refused_beside_anything_else(tiny, done, foreign):
    (done / foreign).mkdir() if foreign.endswith("/") else write_file(done / foreign)
    before = content_of(done)
    line = tiny.refused(done, *STEPS, AFRESH)
    assert f"holds {foreign.split('/')[0]}" in line
    assert foreign in line or "checkpoint-77/" in line
    assert content_of(done) == before
    assert (done / foreign).exists()


def test_a_link_in_place_of_what_was_written_is_foreign_and_not_followed(tiny, done, tmp_path):
    kept = tmp_path / "elsewhere"
    shutil.move(done / "checkpoint-2", kept)
    (done / "checkpoint-2").symlink_to(kept)
    before = content_of(kept)
    assert "holds checkpoint-2, which is not in written.json" in tiny.refused(done, *STEPS, AFRESH)
    assert content_of(kept) == before


@pytest.mark.parametrize("name", ["../thesis.txt", "/etc/hostname", "best/../../thesis.txt", "."])
def test_a_record_that_points_outside_is_refused(tiny, done, tmp_path, name):
    kept = write_file(tmp_path / "thesis.txt")
    record = json.loads((done / run_record.RECORD).read_text(encoding="utf-8"))
    record["files"].append(name)
    write_file(done / run_record.RECORD, json.dumps(record))
    before = content_of(done)
    assert "which is no path below it" in tiny.refused(done, *STEPS, AFRESH)
    assert content_of(done) == before
    assert kept.is_file()


def test_a_folder_of_an_earlier_version_goes_on_and_is_never_emptied(tiny, done):
    (done / run_record.RECORD).unlink()
    before = content_of(done)
    line = tiny.refused(done, *STEPS, AFRESH)
    assert "and no written.json" in line
    assert "move or delete it yourself, or choose another --output_dir" in line
    assert content_of(done) == before
    for _ in range(2):
        tiny.done(done, *STEPS)
    assert not (done / run_record.RECORD).exists()


def test_an_evaluation_without_a_trained_head_removes_nothing(tiny, done):
    """The head was in the folder that would have been emptied first."""
    flags = [flag for flag in tiny.command(done, *STEPS, AFRESH) if flag != "--do_train"]
    before = content_of(done)
    from sot_paddle.train.text_command import run_command

    assert run_command(flags) == 2
    assert content_of(done) == before


@pytest.mark.parametrize("where", ["best", "last", "", "a link", "linked files"])
def test_the_weights_to_start_from_are_not_removed(tiny, done, tmp_path, where):
    source = done / where
    if where == "a link":
        source = tmp_path / "link"
        source.symlink_to(done / "best")
    elif where == "linked files":
        source = tmp_path / "linked"
        source.mkdir()
        for path in (done / "best").iterdir():
            (source / path.name).symlink_to(path)
    before = content_of(done)
    assert f"--model_name_or_path {source}: --overwrite_output_dir would remove it" in tiny.refused(
        done, *STEPS, AFRESH, "--model_name_or_path", str(source)
    )
    assert content_of(done) == before


def test_configuration_and_vocabulary_are_not_removed_either(tiny, done):
    for flag in ("--config_name", "--tokenizer_name"):
        assert f"{flag} {done / 'best'}: --overwrite_output_dir would remove it" in tiny.refused(
            done, *STEPS, AFRESH, flag, str(done / "best")
        )


def test_predictions_do_not_replace_a_users_file(tiny, done, tmp_path):
    """In the folder of a run, and in a folder that an evaluation is asked to write into."""
    (done / "RTE.tsv").unlink()
    run_record.note(done, ["x"])  # forgets what is gone
    write_file(done / "RTE.tsv")
    assert f"{done / 'RTE.tsv'} would be replaced" in tiny.refused(done, *STEPS)
    other = tmp_path / "other"
    write_file(other / "metrics.json")
    flags = [f for f in tiny.command(other) if f != "--do_train"]
    flags[flags.index("bert_base_mgcrp")] = str(done / "best")
    from sot_paddle.train.text_command import run_command

    assert run_command(flags) == 2
    assert (other / "metrics.json").read_text(encoding="utf-8") == "mine"


def test_seeds_have_folders_and_records_of_their_own(tiny, tmp_path):
    out = tmp_path / "out"
    tiny.done(out, *STEPS, "--seeds", "1,2")
    assert run_record.read(out) == {"metrics.json"}
    write_file(out / "seed-2" / "thesis.txt")
    before = content_of(out)
    assert "seed-2 holds thesis.txt" in tiny.refused(out, *STEPS, "--seeds", "1,2", AFRESH)
    assert content_of(out) == before, (
        "the first seed's folder was emptied before the second's check"
    )
    assert "holds seed-1/" in tiny.refused(out, *STEPS, AFRESH)
    (out / "seed-2" / "thesis.txt").rename(out / "thesis.txt")
    assert "holds thesis.txt" in tiny.refused(out, *STEPS, "--seeds", "1,2", AFRESH)
    (out / "thesis.txt").unlink()
    tiny.done(out, *STEPS, "--seeds", "1,2", AFRESH)


def test_a_second_run_is_refused_by_name_and_changes_nothing(tiny, done, tmp_path):
    before = content_of(done)
    for flags in ((), (AFRESH,), ("--seeds", "1,2")):
        with folder_lock.hold(done):
            line = tiny.refused(done, *STEPS, *flags)
        assert f"{done} is in use by another run (process " in line
        assert " on " in line
        assert "started 20" in line
        assert content_of(done) == before


def test_the_lock_holds_from_the_first_file_to_the_last(tiny, tmp_path, monkeypatch):
    """A run that begins when another is about to write its metrics is refused."""
    seen, out = [], tmp_path / "out"
    original = run_folder.write_json

    def noted(path, content):
        with pytest.raises(ValueError, match="in use by another run"):
            run_folder.check(out, None, {})
        seen.append(path.name)
        original(path, content)

    monkeypatch.setattr(run_folder, "write_json", noted)
    tiny.done(out, *STEPS, "--head", "plain")
    assert seen[0] == "run.json"
    assert seen[-1] == "metrics.json"
    folder_lock.refuse_held(out)


def test_a_killed_run_leaves_no_lock_and_is_continued(tiny, done, tmp_path):
    code = f"""
        import os, signal
        from pathlib import Path
        from sot_paddle.train import folder_lock
        with folder_lock.hold(Path({str(done)!r})):
            if os.fork() == 0:  # as the processes that read images: it outlives the killed one
                os.write(1, b"let go\\n")  # a fork has the lock too until it first runs
                os.close(1)
                os.read(0, 1)
                os._exit(0)
            signal.pause()
    """
    begun = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert begun.stdout.readline() == b"let go\n"
    begun.kill()
    assert begun.wait() == -9
    try:
        status, err = tiny.start(done, *STEPS)
    finally:
        begun.communicate(b"x")  # ends the child
    assert status == 0, err
    assert (done / folder_lock.LOCK).is_file()


def test_images_follow_the_same_rules(images, tmp_path):
    out, flags = tmp_path / "out", ("--max-steps", "2")
    images.done(out, *flags)
    assert run_record.first_foreign(out) is None
    before = content_of(out)
    assert "--overwrite_output_dir would remove it" in images.refused(
        out, *flags, "--overwrite-output-dir", "--initial-checkpoint", str(out)
    )
    images.refused(out, *flags, "--overwrite-output-dir", "--set", "embed_dim=13")
    with folder_lock.hold(out):
        assert "in use by another run" in images.refused(out, *flags)
    assert content_of(out) == before
    write_file(out / "best" / "notes.txt")
    assert "holds best/notes.txt" in images.refused(out, *flags, "--overwrite-output-dir")
    (out / "best" / "notes.txt").unlink()
    assert content_of(out) == before
    images.done(out, *flags, "--overwrite-output-dir", "--seed", "3")
    assert len(checkpointing.list_checkpoints(out)) == 1
