"""Comparisons on several tasks, with a stand-in for the training command and made-up records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sot_paddle.search import training_process
from sot_paddle.search.evidence import read_plan
from sot_paddle.search.evidence_command import run_command

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
PLAN = """
command: train_glue
shared: {epochs: 1, flag: true, layers: [10, 11]}
tasks: {RTE: {}, STS-B: {epochs: 3}}
configurations: {new: {head: mgcrp}, old: {head: plain}}
learning_rates: [1.0e-3, 2.0e-4]
rate_seeds: [8, 9]
seeds: [1, 2, 3]
"""
STANDIN = """
import argparse, json, sys
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=Path)
parser.add_argument("--set", action="append", dest="assigned")
options, rest = parser.parse_known_args()
given = dict(pair.split("=", 1) for pair in options.assigned)
out = options.output_dir
run = "/".join(given[name] for name in ("task_name", "head", "learning_rate", "seed"))
stop, refuse = (Path(__file__).with_name(name) for name in ("stop", "refuse"))
if refuse.is_file() and refuse.read_text() == run:
    sys.exit(print(f"mgcrp refuses {run}") or 2)
out.mkdir(parents=True, exist_ok=True)
with open(out / "started", "a") as stream:
    stream.write("x")
(out / "checkpoint-1").mkdir(exist_ok=True)
if stop.is_file() and stop.read_text() == run:
    stop.unlink()
    sys.exit(143)
best = {"mgcrp": "0.0002", "plain": "0.001"}[given["head"]] == given["learning_rate"]
score = 0.5 + 0.2 * best + len(given["task_name"]) / 100 + hash(int(given["seed"]) ** 3 % 7) / 50
score += {"mgcrp": 0.001, "plain": 0.0}[given["head"]] * int(given["seed"])
(out / "metrics.json").write_text(json.dumps({"metric": "acc", "finished": True,
    "last": {"acc": score}, "best": {"acc": score + 0.01}, "given": given, "rest": rest}))
"""


class Bench:
    """A plan, a stand-in, folders of data, and the command on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tools = folder, folder / "tools"
        self.tools.mkdir()
        (self.tools / "train_glue.py").write_text(STANDIN, "utf-8")
        (folder / "plan.yaml").write_text(PLAN, "utf-8")
        for task in ("RTE", "STS-B"):
            (folder / "glue" / task).mkdir(parents=True)

    def run(self, out: Path, *more: object) -> int:
        given = ["--plan", self.folder / "plan.yaml", "--data_dir", self.folder / "glue"]
        given += ["--model_name_or_path", "bert", "--output_dir", out, *more]
        return run_command([*map(str, given)], self.tools)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch) -> Bench:
    monkeypatch.setattr(training_process, "_POLL", 0.01)
    return Bench(tmp_path)


def tables(out: Path) -> tuple[bytes, bytes]:
    return (out / "summary.json").read_bytes(), (out / "summary.md").read_bytes()


def test_interrupted_and_continued_is_uninterrupted(bench: Bench, tmp_path, capsys) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert bench.run(whole) == 0
    printed = capsys.readouterr().out
    assert printed == (whole / "summary.md").read_text("utf-8")
    runs = sorted(path.relative_to(whole) for path in whole.rglob("started"))
    assert len(runs) == 2 * (2 * 2 * 2 + 2 * 3)
    for run in ("RTE/plain/0.001/9", "STS-B/mgcrp/0.0002/8", "RTE/plain/0.001/2"):
        (bench.tools / "stop").write_text(run)
        assert bench.run(stopped) == 130, run
        assert not (bench.tools / "stop").exists()
    found = json.loads((stopped / "summary.json").read_text())
    assert {task: row["seeds"] for task, row in found.items()} == {"RTE": [1], "STS-B": [1]}
    capsys.readouterr()
    assert bench.run(stopped) == 0
    assert tables(stopped) == tables(whole)
    assert capsys.readouterr().out == printed
    started = [(stopped / run).read_text() for run in runs]
    assert sorted(started) == ["x"] * (len(runs) - 3) + ["xx"] * 3
    assert list(whole.rglob("checkpoint-1")) == []
    before = tables(whole)
    assert bench.run(whole, "--tasks", "RTE", "--seeds", 2) == 0  # nothing is left to run
    assert tables(whole) == before


def test_each_rate_is_chosen_on_seeds_apart_and_then_kept(bench, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert bench.run(out, "--tasks", "STS-B", "--seeds", 1) == 0
    found = json.loads((out / "summary.json").read_text())
    assert found.keys() == {"STS-B"}
    assert found["STS-B"]["learning_rates"] == {"new": 0.0002, "old": 0.001}
    longer = PLAN.replace("epochs: 3", "epochs: 4")
    (bench.folder / "plan.yaml").write_text(longer, "utf-8")
    assert bench.run(out, "--tasks", "STS-B", "--seeds", 1) == 2
    assert "was begun with something else" in capsys.readouterr().err
    given = {
        path.relative_to(out / "STS-B").as_posix(): json.loads(path.read_text())["given"]
        for path in out.rglob("metrics.json")
    }
    chosen = {run["seed"] for name, run in given.items() if name.startswith("rates")}
    assert chosen == {"8", "9"}
    assert given["compared/old/seed-1/run/metrics.json"] == {
        **{"epochs": "3", "flag": "true", "task_name": "STS-B", "model_name_or_path": "bert"},
        **{"data_dir": str(bench.folder / "glue" / "STS-B"), "head": "plain"},
        **{"learning_rate": "0.001", "seed": "1", "layers": "10,11"},
    }


@pytest.mark.parametrize("refused", ["RTE/mgcrp/0.001/8", "STS-B/mgcrp/0.001/8"])
def test_a_refused_first_run_of_a_task_leaves_nothing_of_it(bench, tmp_path, capsys, refused):
    """Else a plan with other options for this task would be another one for ever."""
    out = tmp_path / "new" / "out"
    (bench.tools / "refuse").write_text(refused)
    assert bench.run(out, "--seeds", 1) == 2
    assert f"mgcrp refuses {refused}" in capsys.readouterr().err
    left = {"RTE", "evidence.json", "run.lock", "summary.json", "summary.md"}
    if refused.startswith("RTE"):
        assert not out.parent.exists()
    else:
        assert {path.name for path in out.iterdir()} == left
    (bench.tools / "refuse").unlink()
    longer = PLAN.replace("epochs: 3", "epochs: 4")
    (bench.folder / "plan.yaml").write_text(longer, "utf-8")
    assert bench.run(out, "--seeds", 1) == 0


def test_the_table_of_made_up_records_has_the_intervals_of_scipy(bench, tmp_path, capsys) -> None:
    (bench.tools / "train_glue.py").unlink()  # nothing may run
    rng, out = np.random.default_rng(3), tmp_path / "out"
    assert bench.run(out, "--seeds", 0) == 0

    def record(place: str, score: float | None) -> None:
        folder = out / "RTE" / place / "run"
        folder.mkdir(parents=True)
        content = {"metric": "acc", "last": {"acc": score}, "best": {"acc": 1.0}, "finished": True}
        (folder / "metrics.json").write_text(json.dumps(content))

    for name in ("new", "old"):
        for rate in ("0.001", "0.0002"):
            for seed in (8, 9):
                score = None if (rate, seed) == ("0.001", 9) else 0.5  # none of a diverged run
                record(f"rates/{name}/{rate}/seed-{seed}", score)
    new, old = rng.normal(0.6, 0.1, 3), rng.normal(0.5, 0.1, 2)
    for seed, score in enumerate(new, start=1):
        record(f"compared/new/seed-{seed}", score)
    for seed, score in enumerate(old, start=1):
        record(f"compared/old/seed-{seed}", score)
    capsys.readouterr()
    assert bench.run(out, "--seeds", 0) == 0
    found = json.loads((out / "summary.json").read_text())
    assert found.keys() == {"RTE"}
    assert set(found["RTE"]["learning_rates"].values()) == {0.0002}
    assert (found["RTE"]["seeds"], found["RTE"]["confidence"]) == ([1, 2], 0.95)
    test = stats.ttest_rel(new[:2], old)
    expected = test.confidence_interval(0.95)
    row = found["RTE"]["last"]["new - old"]
    assert row["mean"] == pytest.approx(np.mean(new[:2] - old), rel=1e-12)
    assert row["p_value"] == pytest.approx(test.pvalue, rel=1e-9)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high), rel=1e-9)
    line = next(s for s in capsys.readouterr().out.splitlines() if "new - old" in s)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:5] == ["RTE", "acc", "2 of 3", "new - old", ""]
    assert cells[7] == f"{expected.low:.4f} to {expected.high:.4f}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("train_glue", "train", "command must be one of"),
        ("rate_seeds: [8, 9]", "rate_seeds: [8, 3]", "seed 3 would both choose a rate and be"),
        ("seeds: [1, 2, 3]", "seeds: [1, 1]", "seeds must be 2 or more, all different"),
        ("[1.0e-3, 2.0e-4]", "[1e-3, 2.0e-4]", "option 'learning_rates' must be tuple[float, ...]"),
        ("[1.0e-3, 2.0e-4]", "[2.0e-4]", "learning_rates must be 2 or more, all different"),
        (", old: {head: plain}", "", "configurations must be two or more"),
        ("old: {head: plain}", "old: plain", "old must map options to values"),
        ("{epochs: 1", "{seed: 1", "shared: seed is each run's own here"),
        ("head: plain", "learning_rate: 1.0", "old: learning_rate is each run's own here"),
        ("old: {", "../old: {", "'../old' names a folder"),
        ("tasks: {RTE: {}, STS-B: {epochs: 3}}", "", "tasks is missing"),
        ("{RTE: {}, STS-B: {epochs: 3}}", "{}", "tasks must be one or more"),
        ("{RTE: {}, STS-B: {epochs: 3}}", "[RTE]", "option 'tasks' must be dict"),
        ("STS-B: {epochs: 3}", "STS-B: 3", "STS-B must map options to values"),
        ("STS-B: {epochs: 3}", "STS-B: {seed: 3}", "STS-B: seed is each run's own"),
        ("tasks:", "task: 1\ntasks:", "unknown option 'task'"),
    ],
)
def test_a_bad_plan_is_refused_by_name(bench, tmp_path, old, new, message, capsys) -> None:
    assert PLAN.count(old) == 1
    (bench.folder / "plan.yaml").write_text(PLAN.replace(old, new), "utf-8")
    assert bench.run(tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"evidence: {bench.folder / 'plan.yaml'}: ")
    assert message in line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tasks", "RTE,CoLA"), "--tasks: 'CoLA' is none of RTE, STS-B"),
        (("--seeds", "4"), "--seeds must be from 0 to 3, got 4"),
        (("--seeds", "-1"), "--seeds must be from 0 to 3, got -1"),
        (("--data_dir", "nowhere"), "--data_dir: no folder nowhere/RTE"),
        (("--plan", "none.yaml"), "none.yaml"),
    ],
)
def test_what_cannot_be_run_is_one_line(bench, tmp_path, more, message, capsys) -> None:
    assert bench.run(tmp_path / "out", *more) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


def test_going_on_with_another_plan_is_refused(bench, tmp_path, capsys) -> None:
    assert bench.run(tmp_path / "out", "--seeds", 0) == 0
    more = PLAN.replace("seeds: [1, 2, 3]", "seeds: [1, 2, 3, 4]").replace("STS-B", "MRPC")
    (bench.folder / "plan.yaml").write_text(more, "utf-8")
    assert bench.run(tmp_path / "out", "--tasks", "RTE", "--seeds", 0) == 0
    (bench.folder / "plan.yaml").write_text(PLAN.replace("epochs: 1", "epochs: 2"), "utf-8")
    capsys.readouterr()
    assert bench.run(tmp_path / "out", "--seeds", 0) == 2
    assert "was begun with something else: shared was" in capsys.readouterr().err


def test_the_shipped_plan_is_the_one_of_its_command(capsys) -> None:
    path = ROOT / "configs" / "evidence" / "glue_heads.yaml"
    plan = read_plan(path)
    assert sorted(plan.tasks) == ["CoLA", "MRPC", "RTE", "STS-B"]
    assert list(plan.configurations) == ["mgcrp_masked", "mgcrp", "plain"]
    assert (len(plan.seeds), len(plan.rate_seeds)) == (10, 2)
    text = path.read_text("utf-8")
    for word in ("Published:", "Ours:", "Expected time:", f"--plan configs/evidence/{path.name}"):
        assert word in text
