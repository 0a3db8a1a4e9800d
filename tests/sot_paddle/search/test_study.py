"""Search spaces; searches of a stand-in for a training: drawn, remembered, ended and repeated."""

from __future__ import annotations

import csv
import dataclasses
import shutil
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sot_paddle import atomic
from sot_paddle.cli import lazy_command
from sot_paddle.search.study import read_space
from sot_paddle.search.trainings import COMMANDS, all_options
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.state_options import StateTrainConfig
from tests.sot_paddle.search.conftest import Bench

run_command = lazy_command("search", "sot_paddle.search.study:run_command")


def rows(out: Path) -> list[dict]:
    with open(out / "trials.csv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def search(bench: Bench, *own: object, training: tuple = (), **space: object) -> int:
    words = [*bench.space(**space), *map(str, own), "--", *bench.training, *map(str, training)]
    return run_command(words)


def test_a_search_says_and_keeps_what_is_best(bench, capsys):
    bench.out = bench.folder / "out ?%20#"
    assert search(bench, trials=4, startup_trials=2) == 0
    found = rows(bench.out)
    assert [row["number"] for row in found] == [str(number) for number in range(4)]
    for row in found:
        x = float(row["params_learning_rate"])
        assert float(row["value"]) == pytest.approx((x - 0.3) ** 2 + 1 / 3, rel=1e-12)
        assert row["state"] == "COMPLETE"
    best = min(found, key=lambda row: float(row["value"]))
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"best of 4 trials: loss {float(best['value']):.6g}, trial {best['number']}:"
    assert second.startswith(f"--set learning_rate={best['params_learning_rate']} --set seed=0 ")
    kept = {path.parent.name for path in bench.out.glob("trials/*/best")}
    assert kept == {f"{int(best['number']):04d}"}
    assert (bench.out / "study.db").is_file()


@pytest.mark.parametrize("space", [{}, {"metric": "main", "startup_trials": 1, "pruner": "median"}])
def test_an_interrupted_search_goes_on_and_ends_as_a_whole_one(bench, space):
    assert search(bench, trials=4, **space) == 0
    whole, started = rows(bench.out), bench.contents("started")
    shutil.rmtree(bench.out)
    bench.stops = {("0001", 1), ("0002", 3)}
    for _ in range(2):
        assert search(bench, trials=4, **space) == 130
    assert search(bench, "--trials", 3, trials=4, **space) == 0
    assert search(bench, trials=4, **space) == 0  # one more
    assert rows(bench.out) == whole
    assert bench.contents("started") == {
        name: count + "x" * (name in ("trials/0001", "trials/0002"))
        for name, count in started.items()
    }


def test_a_trial_that_falls_behind_is_ended(bench):
    assert search(bench, trials=10, pruner="median") == 0
    pruned = [row for row in rows(bench.out) if row["state"] == "PRUNED"]
    assert 0 < len(pruned) < 10
    for row in pruned:
        folder = bench.out / "trials" / f"{int(row['number']):04d}"
        assert len(list(folder.glob("step-*"))) < 3
        assert not (folder / "metrics.json").exists()
        assert not (folder / "best").exists()


def test_a_failed_trial_is_a_row_and_is_not_repeated(bench):
    bench.nan_above = 0.75
    assert search(bench, trials=6) == 0
    found = rows(bench.out)
    failed = [row for row in found if row["state"] == "FAIL"]
    assert failed == [row for row in found if float(row["params_learning_rate"]) > 0.75] != []
    assert {(row["user_attrs_reason"], row["value"]) for row in failed} == {("the loss is nan", "")}
    assert search(bench, trials=6) == 0
    assert set(bench.contents("started").values()) == {"x"}


def test_a_search_without_a_score_says_where_the_reasons_are(bench, capsys):
    bench.nan_above = -1.0
    assert search(bench) == 2
    assert "trials.csv says why" in capsys.readouterr().err
    assert [row["state"] for row in rows(bench.out)] == ["FAIL"] * 4


def test_a_refused_first_trial_leaves_nothing_to_go_on_with(bench, capsys):
    bench.refuses = True
    assert search(bench) == 2
    assert capsys.readouterr().err.endswith("search: the stand-in refuses\n")
    bench.refuses = False
    assert search(bench, training=("--weight_decay", 0.1)) == 0


@pytest.mark.parametrize(
    ("own", "training", "space", "words"),
    [
        (("--trials", 0), (), {}, "trials must be at least 1, got 0"),
        ((), ("--overwrite_output_dir",), {}, "each run has its own folder"),
        ((), (), {"metric": "f1"}, "no score 'f1'; the runs have acc, loss"),
    ],
)
def test_bad_options_are_refused(bench, capsys, own, training, space, words):
    assert search(bench, *own, training=training, **space) == 2
    assert words in capsys.readouterr().err
    assert not (bench.out / "study.db").exists()


def test_only_the_same_search_goes_on_in_its_folder(bench, capsys):
    config = bench.folder / "config.yaml"
    config.write_text("weight_decay: 0.1\n", encoding="utf-8")
    more = ("--config", config)
    assert search(bench, training=more) == 0
    with atomic.hold(bench.out):
        assert search(bench, training=more) == 2
        assert "in use by another run" in capsys.readouterr().err
    for own, space, words in (
        (("--seed", 3), {}, "seed of the search was 0, now 3"),
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


ROOT = Path(__file__).resolve().parents[3]
SPACES = sorted((ROOT / "configs" / "search").glob("*.yaml"))
OPTIONS = {"train_glue": TrainConfig, "train_adapter": StateTrainConfig}
WHOLE = """\
command: train_glue
metric: loss
direction: minimize
parameters:
  x: {kind: uniform, low: 0.0, high: 3.0e-5}
"""


def test_the_spaces_are_those_of_the_source():
    """specs.md C.4."""
    names = ["bertvision_adapter", "bertvision_lr", "bertvision_lr_seed"]
    assert [path.stem for path in SPACES] == names
    adapter, rate, seed = map(read_space, SPACES)
    assert adapter.parameters == {
        "adapter_dim": CategoricalDistribution([2**power for power in range(3, 9)]),
        "learning_rate": FloatDistribution(1e-6, 1e-3),
        "seed": IntDistribution(1, 2000),
    }
    assert rate.parameters == {"learning_rate": FloatDistribution(0.0, 3e-5)}
    assert seed.parameters == rate.parameters | {"seed": IntDistribution(0, 999)}
    assert (adapter.trials, adapter.metric, adapter.direction) == (6, "main", "maximize")
    assert (rate.trials, rate.metric, rate.direction) == (100, "loss", "minimize")
    assert (seed.trials, seed.metric, seed.direction) == (100, "main", "maximize")
    for space in (adapter, rate, seed):
        known = {field.name for field in dataclasses.fields(OPTIONS[space.command])}
        assert set(space.parameters) <= known


def test_a_bound_may_be_text(tmp_path):
    """YAML reads 1e-6 as text."""
    path = tmp_path / "space.yaml"
    path.write_text(WHOLE + "  y: {kind: log_uniform, low: 1e-6, high: 1.0e-3}\n", "utf-8")
    assert read_space(path).parameters["y"] == FloatDistribution(1e-6, 1e-3, log=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "metric: loss",
            "metric: loss\npruner: fast",
            "pruner must be one of none, median, halving",
        ),
        ("minimize", "down", "direction must be one of minimize, maximize, got 'down'"),
        ("high: 3.0e-5", "hihg: 3.0e-5", "parameter 'x': .*'hihg'"),
        ("uniform", "normal", "parameter 'x': expected a kind of uniform, .*, got 'normal'"),
        ("  x:", "  output_dir:", "must name one option at least, and not output_dir"),
    ],
)
def test_a_bad_space_is_refused_by_name(tmp_path, old, new, message):
    assert WHOLE.count(old) == 1
    path = tmp_path / "space.yaml"
    path.write_text(WHOLE.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=f"space.yaml: .*{message}"):
        read_space(path)


GIVEN = {
    "train_adapter": "--task_name RTE --states here",
    "train_glue": "--task_name RTE --data_dir here --model_name_or_path there",
    "train_image": "digits --model sot_tiny",
    "train_text": "--task_name IMDB --data_dir here --model_name_or_path there",
    "train_squad": "--model_name_or_path there",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_tool_that_takes_what_its_runs_are_given(name):
    assert (ROOT / "tools" / f"{name}.py").is_file()
    options = all_options(name, GIVEN[name].split(), {"seed": 3})
    flags = [options.get(flag, True) for flag in ("do_train", "do_eval")]  # images have none
    assert (options["seed"], flags) == (3, [True, True])
    assert "output_dir" not in options
