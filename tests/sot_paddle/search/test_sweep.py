"""Seed sweeps of a stand-in for a training command."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from scipy import stats

from sot_paddle.search.sweep_command import run_command

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch):
    monkeypatch.setenv("STANDIN_ROOT", str(ROOT))


def sweep(out: Path, *options: object, training: tuple = ()) -> list[str]:
    own = ["--command", "train_glue", "--output_dir", out, *options]
    return [*map(str, own), "--", *map(str, training)]


def test_two_configurations_are_compared_seed_by_seed(bench, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = sweep(out, "--a", "x=0.2", "--b", "x=0.6", "word=red", "--seeds", "1,4")
    assert run_command(arguments, bench.tools) == 0
    printed = capsys.readouterr().out
    found = json.loads((out / "summary.json").read_text())
    assert (found["metric"], found["seeds"], found["confidence"]) == ("accuracy", [1, 4], 0.95)
    a, b = [1 - 0.21, 1 - 0.24], [1 - 0.61, 1 - 0.64]  # the stand-in adds .01 for each seed
    assert found["last"]["a"]["values"] == pytest.approx(a, rel=1e-12)
    assert found["last"]["b"]["mean"] == pytest.approx(sum(b) / 2, rel=1e-12)
    best = [1 - 0.21 / 2, 1 - 0.24 / 2], [1 - 0.61 / 2, 1 - 0.64 / 2]
    assert found["best"]["a"]["values"] == pytest.approx(best[0], rel=1e-12)
    assert found["best"]["b"]["std"] == pytest.approx(stats.tstd(best[1]), rel=1e-12)
    assert found["last"]["a - b"]["values"] == pytest.approx([0.4, 0.4], rel=1e-12)
    assert found["last"]["a - b"]["low"] == pytest.approx(0.4, rel=1e-6)
    assert printed == (out / "summary.md").read_text()
    assert "- b: `--set x=0.6 --set word=red`" in printed
    assert "| best | 1 | 4 | mean | deviation | 95 % | p |" in printed


def test_finished_runs_are_not_repeated_and_seeds_may_be_added(bench, tmp_path):
    out, one = tmp_path / "out", ("--a", "x=0.2", "--seeds")
    assert run_command(sweep(out, *one, "1"), bench.tools) == 0
    first = json.loads((out / "summary.json").read_text())
    assert first["last"].keys() == {"a"}
    assert first["last"]["a"]["low"] is None
    log = out / "a" / "seed-1" / "output.log"
    before = log.stat().st_mtime_ns
    assert run_command(sweep(out, *one, "1,2", "--metric", "loss"), bench.tools) == 0
    second = json.loads((out / "summary.json").read_text())
    assert second["last"]["a"]["values"][0] == pytest.approx(0.09**2 + 1 / 3, rel=1e-12)
    assert log.stat().st_mtime_ns == before


def test_a_score_that_is_not_a_number_keeps_its_place(bench, tmp_path, capsys):
    """A correlation of constant predictions; the other seeds' scores are told all the same."""
    out = tmp_path / "out"
    arguments = sweep(out, "--a", "x=0.2", "--b", "x=0.6", "--seeds", "1,4")
    assert run_command(arguments, bench.tools) == 0
    path = out / "a" / "seed-4" / "run" / "metrics.json"
    content = json.loads(path.read_text())
    content["last"]["accuracy"] = None
    path.write_text(json.dumps(content))
    capsys.readouterr()
    assert run_command(arguments, bench.tools) == 0
    found = json.loads((out / "summary.json").read_text())
    assert found["last"]["a"]["values"] == [pytest.approx(1 - 0.21), None]
    assert {found["last"][row]["mean"] for row in ("a", "a - b")} == {None}
    assert found["last"]["b"]["std"] > 0
    assert found["best"]["a"]["std"] > 0
    assert "| a | 0.79 | nan | nan |  |  |  |" in capsys.readouterr().out


@pytest.mark.parametrize("shared", [(), ("--config={}",), ("--config", "{}"), ("-c", "{}")])
def test_a_file_of_options_that_has_changed_is_refused(bench, tmp_path, capsys, shared):
    """Runs of the old and of the new content would be averaged as one configuration."""
    out, file = tmp_path / "out", tmp_path / "first.yaml"
    file.write_text("x: 0.2\n", encoding="utf-8")
    words = ["word=red"] if shared else [file]
    training = tuple(word.format(file) for word in shared)
    assert run_command(sweep(out, "--a", *words, "--seeds", 1, training=training), bench.tools) == 0
    again = sweep(out, "--a", *words, "--seeds", "1,2", training=training)
    file.write_text("x: 0.6\n", encoding="utf-8")
    capsys.readouterr()
    assert run_command(again, bench.tools) == 2
    assert f"begun with something else: content of {file} was" in capsys.readouterr().err
    assert not (out / "a" / "seed-2").exists()
    file.write_text("x: 0.2\n", encoding="utf-8")
    assert run_command(again, bench.tools) == 0


def test_a_killed_sweep_goes_on_where_it_was(bench, tmp_path):
    out = tmp_path / "out"
    arguments = sweep(
        *(out, "--a", "x=0.2", "--b", "x=0.3", "--seeds", "0,1"),
        training=("--seconds", 0.3, "--steps", 4),
    )
    began = out / "b" / "seed-0" / "run" / "steps"
    with subprocess.Popen(bench.process("sweep", arguments), cwd=ROOT) as process:
        deadline = time.monotonic() + 60
        while not began.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert run_command(arguments, bench.tools) == 0
    for path in out.glob("*/seed-*/run/steps"):
        assert path.read_text().split() == ["1", "2", "3", "4"]
    assert len(list(out.glob("*/seed-*/run/metrics.json"))) == 4


@pytest.mark.parametrize(
    ("options", "training", "message"),
    [
        (("--a", "x=1", "--seeds", "1,1"), (), "--seeds must differ"),
        (("--a", "x=1", "--seeds", "-1"), (), "--seeds must differ and not be negative"),
        (("--a", "x=1", "--seeds", "one"), (), "--seeds must be whole numbers"),
        (("--a", "x=1", "--b", "x=1", "--seeds", "1"), (), "--a and --b are the same"),
        (("--a", "none.yaml", "--seeds", "1"), (), "--a: no file none.yaml"),
        (("--a", "a.yaml", "b.yaml", "--seeds", "1"), (), "--a takes one file at most"),
        (("--a", "seed=1", "--seeds", "1"), (), "seed is each run's own"),
        (("--a", "x=1", "--seeds", "1"), ("--seed", 3), "seed is each run's own"),
        (("--a", "README.md", "--seeds", "1"), ("--config", 3), "config is each run's own"),
        (("--a", "README.md", "--seeds", "1"), ("-c", 3), "config is each run's own"),
        (("--a", "x=1", "--seeds", "1", "--confidence", 1), (), "--confidence must be between"),
        (("--a", "x=1", "--seeds", "1"), ("--refuse",), "a, seed 1: train_glue: the stand-in"),
        (("--a", "x=1", "--seeds", "1", "--metric", "f1"), (), "a, seed 1: no score 'f1'; it has"),
        (
            ("--a", "x=1", "--seeds", "1", "--metric", "loss"),
            ("--nan_above", 0),
            "a, seed 1: train_glue: the loss is nan",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    bench, tmp_path, capsys, monkeypatch, options, training, message
):
    monkeypatch.chdir(ROOT)
    assert run_command(sweep(tmp_path / "o", *options, training=training), bench.tools) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("sweep: ")
    assert message in line


def test_a_refused_run_leaves_nothing_behind_but_the_finished_ones(bench, tmp_path):
    out, kept = tmp_path / "out", tmp_path / "kept"
    kept.mkdir()
    one = ("--a", "x=0.2", "--b", "x=3", "--seeds", "1")
    for folder in (out, kept):
        assert run_command(sweep(folder, *one, training=("--refuse",)), bench.tools) == 2
    assert not out.exists()
    assert list(kept.iterdir()) == []
    assert run_command(sweep(out, *one, "--metric", "f1"), bench.tools) == 2
    assert {path.name for path in out.iterdir()} == {"a", "b", "run.lock", "sweep.json"}
