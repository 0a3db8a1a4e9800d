"""Searches of a stand-in for a training: what is drawn, remembered, ended and repeated."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from optuna.samplers import RandomSampler

from sot_paddle.command_line import parse
from sot_paddle.search import study
from sot_paddle.search.search_report import write_plots
from sot_paddle.search.study import run_command
from sot_paddle.tasks.glue_options import COMMAND
from sot_paddle.train import folder_lock
from tests.sot_paddle.search.conftest import Bench


def rows(out: Path) -> list[dict]:
    with open(out / "trials.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def search(bench: Bench, *own: object, training: tuple = (), **space: object) -> int:
    words = [*bench.space(**space), *map(str, own), "--", *bench.training, *map(str, training)]
    return run_command(words)


def test_a_search_says_and_keeps_what_is_best(bench, capsys, monkeypatch):
    monkeypatch.setattr(study, "write_plots", write_plots)
    bench.out = bench.folder / "out ?%20#"
    assert search(bench, trials=8, sampler="tpe", startup_trials=4) == 0
    found = rows(bench.out)
    assert [row["trial"] for row in found] == [str(number) for number in range(8)]
    for row in found:
        x = float(row["learning_rate"])
        assert float(row["loss"]) == pytest.approx((x - 0.3) ** 2 + 1 / 3, rel=1e-12)
        assert row["state"] == "COMPLETE"
    best = min(found, key=lambda row: float(row["loss"]))
    assert f"best of 8 trials: loss {float(best['loss']):.6g}" in capsys.readouterr().out
    first = (bench.out / "trials.md").read_text().splitlines()[4]
    assert first.startswith(f"| {best['trial']} | COMPLETE | ")
    given = [*bench.training, "--output_dir", "o", "--config", str(bench.out / "best.yaml")]
    assert parse(COMMAND, given).learning_rate == float(best["learning_rate"])
    kept = {path.parent.name for path in bench.out.glob("trials/*/best")}
    assert kept == {f"{int(best['trial']):04d}"}
    for name in ("trials.png", "options.png"):
        assert np.std(image.imread(bench.out / name)) > 0.01
    assert (bench.out / "study.db").is_file()


def test_what_is_drawn_depends_on_seed_trial_and_place(bench):
    assert search(bench, "--seed", 3) == 0
    for number, row in enumerate(rows(bench.out)):
        for place, name in enumerate(("learning_rate", "seed", "adam_epsilon")):
            state = np.random.SeedSequence([3, number, place]).generate_state(1)
            unit = RandomSampler(int(state[0]))._rng.rng.uniform(0, 1)
            drawn = {"learning_rate": unit, "adam_epsilon": 10 ** (-8 + 6 * unit)}
            if name in drawn:
                assert float(row[name]) == pytest.approx(drawn[name], rel=1e-9)


@pytest.mark.parametrize("space", [{}, {"pruner": "median", "metric": "main"}])
def test_an_interrupted_search_goes_on_and_ends_as_a_whole_one(bench, space):
    own = ("--keep", "all")
    assert search(bench, *own, trials=6, **space) == 0
    whole, started = rows(bench.out), bench.contents("started")
    shutil.rmtree(bench.out)
    bench.stops = {("0001", 1), ("0003", 3)}
    for _ in range(2):
        assert search(bench, *own, trials=6, **space) == 130
    assert search(bench, *own, "--trials", 5, trials=6, **space) == 0
    assert search(bench, *own, trials=6, **space) == 0  # one more
    assert rows(bench.out) == whole
    assert bench.contents("started") == {
        name: count + "x" * (name in ("trials/0001", "trials/0003"))
        for name, count in started.items()
    }


def test_a_trial_that_falls_behind_is_ended(bench):
    assert search(bench, trials=16, pruner="median") == 0
    pruned = [row for row in rows(bench.out) if row["state"] == "PRUNED"]
    whole = [row for row in rows(bench.out) if row["state"] == "COMPLETE"]
    assert pruned
    assert whole
    for row in pruned:
        folder = bench.out / "trials" / f"{int(row['trial']):04d}"
        assert len(list(folder.glob("step-*"))) < 2
        assert not (folder / "metrics.json").exists()
        assert not (folder / "best").exists()


def test_a_failed_trial_is_a_row_and_is_not_repeated(bench):
    bench.nan_above = 0.75
    assert search(bench, trials=6) == 0
    found = rows(bench.out)
    failed = [row for row in found if row["state"] == "FAIL"]
    assert failed == [row for row in found if float(row["learning_rate"]) > 0.75] != []
    assert {(row["reason"], row["loss"]) for row in failed} == {("the loss is nan", "")}
    assert search(bench, trials=6) == 0
    assert set(bench.contents("started").values()) == {"x"}


def test_three_failures_in_a_row_stop_the_search(bench, capsys):
    bench.nan_above = -1.0
    assert search(bench) == 2
    assert "3 trials failed one after the other, the last one because: the loss is nan" in (
        capsys.readouterr().err
    )
    assert [row["state"] for row in rows(bench.out)] == ["FAIL"] * 3


def test_a_refused_first_trial_leaves_nothing_to_go_on_with(bench, capsys):
    bench.refuses = True
    assert search(bench) == 2
    assert capsys.readouterr().err.endswith("search: the stand-in refuses\n")
    bench.refuses = False
    assert search(bench, training=("--weight_decay", 0.1)) == 0


@pytest.mark.parametrize(
    ("own", "training", "space", "words"),
    [
        (("--trials", 0), (), {}, "--trials must be at least 1, got 0"),
        ((), ("--overwrite_output_dir",), {}, "each run has one seed and its own folder"),
        ((), ("--seeds", "1,2"), {}, "each run has one seed and its own folder"),
        ((), ("--set", "learning_rate=3"), {}, "learning_rate is given twice"),
        ((), ("--learning_rate", 3), {}, "learning_rate is given twice"),
        ((), ("--wieght_decay", 3), {}, "--wieght_decay"),
        ((), (), {"metric": "f1"}, "no score 'f1'; the runs have loss, acc, main"),
    ],
)
def test_bad_options_are_refused(bench, capsys, own, training, space, words):
    try:
        status = search(bench, *own, training=training, **space)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert words in capsys.readouterr().err
    assert not (bench.out / "trials.csv").exists()


def test_only_the_same_search_goes_on_in_its_folder(bench, capsys):
    config = bench.folder / "config.yaml"
    config.write_text("weight_decay: 0.1\n", encoding="utf-8")
    more = ("--config", config)
    assert search(bench, training=more) == 0
    with folder_lock.hold(bench.out):
        assert search(bench, training=more) == 2
        assert "in use by another run" in capsys.readouterr().err
    for own, space, words in (
        (("--seed", 3), {}, "seed of the search was 0, now 3"),
        (("--pruner", "median"), {}, "space was "),
        ((), {"metric": "acc"}, "space was "),
    ):
        assert search(bench, *own, training=more, **space) == 2
        assert words in capsys.readouterr().err
    config.write_text("weight_decay: 0.2\n", encoding="utf-8")
    assert search(bench, training=more) == 2
    assert "weight_decay was 0.1, now 0.2" in capsys.readouterr().err
    bench.out = bench.folder  # of something else
    assert search(bench) == 2
    assert "is not empty and holds no search.json" in capsys.readouterr().err
