"""Searches of a stand-in for a training command: what is drawn, remembered, ended and repeated."""

import csv
import dataclasses
import signal
import subprocess
import time
from pathlib import Path

import optuna
import pytest
from matplotlib import image

from sot_paddle.config import load_yaml
from sot_paddle.search import training_process
from sot_paddle.search.search_command import run_command
from sot_paddle.search.space import read_space
from sot_paddle.search.study import draw
from sot_paddle.search.training_process import OUTPUT

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch):
    monkeypatch.setenv("STANDIN_ROOT", str(ROOT))
    monkeypatch.setattr(training_process, "_POLL", 0.02)


def rows(out: Path) -> list[dict]:
    with open(out / "trials.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def steps(out: Path, number: int) -> list[str]:
    return (out / "trials" / f"{number:04d}" / OUTPUT / "steps").read_text().split()


def refusal(capsys, status: int) -> str:
    assert status == 2
    written = capsys.readouterr().err.strip().splitlines()
    return written[-1]


def test_a_search_finds_the_better_options_and_says_so(bench, tmp_path, capsys):
    bench.space(trials=8)
    out = tmp_path / "out ?%20#"
    assert run_command(bench.search(out), bench.tools) == 0
    found = rows(out)
    assert [row["trial"] for row in found] == [str(number) for number in range(8)]
    assert {row["state"] for row in found} == {"complete"}
    for row in found:
        assert float(row["loss"]) == pytest.approx((float(row["x"]) - 0.3) ** 2 + 1 / 3, rel=1e-12)
        assert row["last step"] == "3"
    assert len({row["x"] for row in found}) == 8
    assert {row["word"] for row in found} <= {"red", "old", "3"}
    best = min(found, key=lambda row: float(row["loss"]))
    assert load_yaml(out / "best.yaml")["x"] == float(best["x"])
    words = f"--set x={float(best['x'])} --set word={best['word']}"
    assert f"# beside another --config: {words}\n" in (out / "best.yaml").read_text()
    printed = capsys.readouterr().out
    assert f"best of 8 trials: loss {float(best['loss']):.6g}, trial {best['trial']}:" in printed
    lines = (out / "trials.md").read_text().splitlines()
    assert lines[2] == "| trial | state | loss | last step | x | word | reason |"
    assert lines[4].startswith(f"| {best['trial']} | complete |")
    assert image.imread(out / "trials.png").shape[2] == 4
    kept = sorted(path.parent.parent.name for path in out.glob("trials/*/run/best"))
    assert kept == [f"{int(best['trial']):04d}"]
    assert len(list(out.glob("trials/*/run/checkpoint-*"))) == 3
    links = [path for path in out.glob("trials/*/run/*") if path.is_symlink()]
    assert [path.parent.parent.name for path in links] == kept
    assert len(list(out.glob("trials/*/run/metrics.json"))) == 8


def test_every_checkpoint_stays_when_asked(bench, tmp_path):
    bench.space(trials=2)
    assert run_command(bench.search(tmp_path / "out", "--keep", "all"), bench.tools) == 0
    assert len(list((tmp_path / "out").glob("trials/*/run/checkpoint-*"))) == 6


def test_a_finished_search_repeats_nothing_and_may_be_asked_for_more(bench, tmp_path):
    bench.space(trials=3)
    out = tmp_path / "out"
    assert run_command(bench.search(out), bench.tools) == 0
    first, logs = rows(out), {p: p.stat().st_mtime_ns for p in out.glob("trials/*/output.log")}
    assert run_command(bench.search(out), bench.tools) == 0
    assert rows(out) == first
    assert {p: p.stat().st_mtime_ns for p in out.glob("trials/*/output.log")} == logs
    assert run_command(bench.search(out, "--trials", 5), bench.tools) == 0
    assert rows(out)[:3] == first
    whole = tmp_path / "whole"
    assert run_command(bench.search(whole, "--trials", 5), bench.tools) == 0
    assert rows(whole) == rows(out)
    other = tmp_path / "other"
    assert run_command(bench.search(other, "--trials", 5, "--seed", 1), bench.tools) == 0
    assert [row["x"] for row in rows(other)] != [row["x"] for row in rows(out)]


def test_a_killed_search_ends_as_if_it_had_not_been_killed(bench, tmp_path):
    bench.space(trials=8, pruner="median")
    whole, out = tmp_path / "whole", tmp_path / "killed"
    slow = ("--seconds", 0.15)
    assert run_command(bench.search(whole, training=slow), bench.tools) == 0
    arguments = bench.search(out, training=slow)
    for number in (1, 4, 7):
        with subprocess.Popen(bench.process("search", arguments), cwd=ROOT) as search:
            began = out / "trials" / f"{number:04d}" / OUTPUT / "steps"
            wait_for(lambda began=began: began.exists())
            search.send_signal(signal.SIGKILL)
    assert run_command(arguments, bench.tools) == 0
    assert rows(out) == rows(whole)
    for number, row in enumerate(rows(out)):
        done = len(steps(out, number))
        assert steps(out, number) == [str(step + 1) for step in range(done)]  # none twice
        assert done == 3 or row["state"] == "pruned"


def wait_for(true) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_search_killed_while_it_draws_draws_the_same(bench, tmp_path):
    """Some options of a trial are in the storage and some are not."""
    space = read_space(bench.space(trials=4))
    whole, out = tmp_path / "whole", tmp_path / "killed"
    assert run_command(bench.search(whole), bench.tools) == 0
    assert run_command(bench.search(out, "--trials", 3), bench.tools) == 0
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{out / 'study.db'}")
    first = {"x": space.parameters["x"]}
    assert draw(study, study.ask(), dataclasses.replace(space, parameters=first), 0).keys() == {"x"}
    assert run_command(bench.search(out), bench.tools) == 0
    assert rows(out) == rows(whole)


def test_a_median_pruner_ends_what_falls_behind_and_saves_its_steps(bench, tmp_path, capsys):
    bench.space(trials=10, pruner="median", sampler="random")
    out = tmp_path / "out"
    training = ("--steps", 6, "--seconds", 0.1)
    assert run_command(bench.search(out, training=training), bench.tools) == 0
    pruned = [row for row in rows(out) if row["state"] == "pruned"]
    assert pruned
    complete = [row for row in rows(out) if row["state"] == "complete"]
    assert {row["last step"] for row in complete} == {"6"}
    assert max(int(row["trial"]) for row in complete) >= 5  # one that could have been ended
    for row in pruned:
        assert int(row["trial"]) >= 5  # the first five are never ended
        assert int(row["last step"]) == 1
        assert len(steps(out, int(row["trial"]))) <= 3  # it ends after the step it is in
        assert not (out / "trials" / f"{int(row['trial']):04d}" / OUTPUT / "metrics.json").exists()
    assert "ended at step 1, the others do better" in capsys.readouterr().err


def test_main_is_the_metric_of_the_runs_also_for_the_pruner(bench, tmp_path):
    bench.space(trials=9, metric="main", direction="maximize", pruner="median", sampler="random")
    out = tmp_path / "out"
    training = ("--steps", 4, "--seconds", 0.1)
    assert run_command(bench.search(out, training=training), bench.tools) == 0
    for row in rows(out):
        digits = 1e-12 if row["state"] == "complete" else 1e-4  # a pruned one's is printed
        assert float(row["main"]) == pytest.approx(1 - float(row["x"]), abs=digits)
    assert "pruned" in {row["state"] for row in rows(out)}


def test_a_failed_trial_is_a_row_and_is_not_repeated(bench, tmp_path):
    bench.space(trials=6, sampler="random")
    out = tmp_path / "out"
    training = ("--nan_above", 0.75)
    assert run_command(bench.search(out, training=training), bench.tools) == 0
    failed = [row for row in rows(out) if row["state"] == "failed"]
    assert failed
    assert [row["trial"] for row in rows(out) if float(row["x"]) > 0.75] == [
        row["trial"] for row in failed
    ]
    assert {(row["reason"], row["loss"]) for row in failed} == {("train_glue: the loss is nan", "")}
    logs = {path: path.read_bytes() for path in out.glob("trials/*/output.log")}
    assert run_command(bench.search(out, training=training), bench.tools) == 0
    assert {path: path.read_bytes() for path in out.glob("trials/*/output.log")} == logs


def test_three_failures_in_a_row_stop_the_search(bench, tmp_path, capsys):
    bench.space(trials=6)
    out = tmp_path / "out"
    training = ("--nan_above", -1)
    line = refusal(capsys, run_command(bench.search(out, training=training), bench.tools))
    assert "3 trials failed one after the other" in line
    assert "the loss is nan" in line
    assert [row["state"] for row in rows(out)] == ["failed"] * 3


def test_a_refused_first_trial_leaves_nothing_behind(bench, tmp_path, capsys):
    bench.space()
    out = tmp_path / "out"
    line = refusal(capsys, run_command(bench.search(out, training=["--refuse"]), bench.tools))
    assert line == "search: train_glue refused the first trial: train_glue: the stand-in refuses"
    assert not out.exists()
    assert run_command(bench.search(out, "--trials", 1), bench.tools) == 0


def test_a_crash_of_the_training_stops_the_search(bench, tmp_path, capsys):
    bench.space()
    done = run_command(bench.search(tmp_path / "out", training=["--crash"]), bench.tools)
    line = refusal(capsys, done)
    assert "crashed with status 1: RuntimeError: the stand-in crashes" in line


def test_a_score_that_the_runs_do_not_have_is_named(bench, tmp_path, capsys):
    bench.space(metric="f1")
    line = refusal(capsys, run_command(bench.search(tmp_path / "out"), bench.tools))
    assert "the runs have no score 'f1'; they have loss, accuracy" in line
    bench.space(metric="f1", pruner="median")
    slow = ("--seconds", 0.4, "--steps", 50)
    started = time.monotonic()
    line = refusal(capsys, run_command(bench.search(tmp_path / "b", training=slow), bench.tools))
    assert "the runs have no score 'f1'; they have loss, accuracy" in line
    assert time.monotonic() - started < 15  # after the first evaluation, not after 20 s


@pytest.mark.parametrize(
    ("number", "status", "ended"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated by SIGTERM")],
)
def test_an_interrupted_search_lets_the_training_save(bench, tmp_path, number, status, ended):
    bench.space(trials=2)
    out = tmp_path / "out"
    command = bench.process("search", bench.search(out, training=("--seconds", 0.5)))
    search = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_for((out / "trials" / "0000" / OUTPUT / "steps").exists)
    search.send_signal(number)
    _, said = search.communicate(timeout=60)
    assert search.returncode == status
    assert said.splitlines()[-1].startswith(f"search: {ended}; run the same command again")
    log = (out / "trials" / "0000" / "output.log").read_text()
    assert "stopped after the step" in log


def test_a_killed_search_takes_its_training_along(bench, tmp_path):
    bench.space(trials=1)
    out = tmp_path / "out"
    command = bench.process("search", bench.search(out, training=("--seconds", 1, "--steps", 60)))
    with subprocess.Popen(command, cwd=ROOT) as search:
        wait_for((out / "trials" / "0000" / OUTPUT / "steps").exists)
        search.send_signal(signal.SIGKILL)
    wait_for(lambda: "stopped after" in (out / "trials/0000/output.log").read_text())
    assert len(steps(out, 0)) < 10


def test_two_searches_do_not_share_a_folder(bench, tmp_path, capsys):
    bench.space(trials=1)
    out = tmp_path / "out"
    command = bench.process("search", bench.search(out, training=("--seconds", 1)))
    with subprocess.Popen(command, cwd=ROOT) as search:
        wait_for((out / "trials" / "0000").exists)
        line = refusal(capsys, run_command(bench.search(out), bench.tools))
        assert "is in use by another run" in line
        assert search.wait(timeout=60) == 0


def test_going_on_with_something_else_is_refused_by_name(bench, tmp_path, capsys):
    bench.space(trials=1)
    out = tmp_path / "out"
    assert run_command(bench.search(out), bench.tools) == 0
    for options, training, word in (
        (("--seed", 3), (), "seed was 0, now 3"),
        ((), ("--steps", 4), "arguments was [], now ['--steps', '4']"),
        (("--pruner", "median"), (), "space was"),
    ):
        arguments = bench.search(out, *options, training=training)
        assert word in refusal(capsys, run_command(arguments, bench.tools))


@pytest.mark.parametrize(
    ("options", "training", "message"),
    [
        (("--trials", 0), (), "--trials must be at least 1, got 0"),
        (("--seed", -1), (), "--seed must be at least 0, got -1"),
        ((), ("--output_dir", "o"), "output_dir is each run's own"),
        ((), ("--overwrite-output-dir",), "overwrite_output_dir is each run's own"),
        ((), ("--seeds=1,2",), "seeds is each run's own"),
        ((), ("--set", "x=3"), "x is each run's own"),
        ((), ("--set=word=red",), "word is each run's own"),
    ],
)
def test_bad_options_are_refused_in_one_line(bench, tmp_path, capsys, options, training, message):
    bench.space()
    status = run_command(bench.search(tmp_path / "o", *options, training=training), bench.tools)
    assert status == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not (tmp_path / "o").exists()


def test_a_folder_of_something_else_is_refused(bench, tmp_path, capsys):
    bench.space()
    (tmp_path / "notes").write_text("mine")
    line = refusal(capsys, run_command(bench.search(tmp_path), bench.tools))
    assert "is not empty and holds no search.json" in line
    line = refusal(capsys, run_command(bench.search(tmp_path / "notes"), bench.tools))
    assert "is no folder" in line
