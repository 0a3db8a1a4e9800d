"""Sweeps over seeds with a stand-in for the training: scores, pairs, going on, refusals."""

from __future__ import annotations

import json

import pytest
from scipy import stats

from sot_paddle.cli import lazy_command
from sot_paddle.search.sweep import seed_scores
from tests.sot_paddle.search.conftest import Bench

run_command = lazy_command("sweep", "sot_paddle.search.sweep:run_command")
A, B = (0.71, 0.66, 0.75, 0.69), (0.64, 0.67, 0.70, 0.61)


def sweep(bench: Bench, *own: object, training: tuple = ()) -> int:
    words = ["--command", "train_glue", "--output_dir", bench.out, *own, "--", *bench.training]
    return run_command([*map(str, words), *map(str, training)])


def summary(bench: Bench) -> dict:
    return json.loads((bench.out / "summary.json").read_text())


def test_the_difference_is_scipys_paired_t_test():
    found = seed_scores([a - b for a, b in zip(A, B, strict=True)])
    test = stats.ttest_rel(A, B)
    interval = test.confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found["p_value"] == pytest.approx(test.pvalue, rel=1e-9)


def test_one_seed_or_equal_scores_have_no_p():
    none = dict.fromkeys(("std", "low", "high", "p_value"))
    assert seed_scores([0.5]) == {"values": [0.5], "mean": 0.5, **none}
    equal = {"std": 0.0, "low": 0.5, "high": 0.5, "p_value": None}
    assert seed_scores([0.5, 0.5]) == {"values": [0.5, 0.5], "mean": 0.5, **equal}


def test_two_configurations_are_compared_seed_by_seed(bench, capsys):
    b = ("--b", "learning_rate=0.6", "adam_epsilon=1e-5")
    assert sweep(bench, "--a", "learning_rate=0.2", *b, "--seeds", "1,4") == 0
    printed, found = capsys.readouterr().out, summary(bench)
    assert (found["metric"], found["seeds"]) == ("acc", [1, 4])
    assert found["last"]["a"]["values"] == pytest.approx([0.79, 0.76], rel=1e-12)
    assert found["last"]["b"]["mean"] == pytest.approx((0.39 + 0.36) / 2, rel=1e-12)
    assert found["best"]["a"]["values"] == pytest.approx([0.895, 0.88], rel=1e-12)
    assert found["last"]["a - b"]["low"] == pytest.approx(0.4, rel=1e-6)
    assert printed == (bench.out / "summary.md").read_text()
    assert "--set=learning_rate=0.6 --set=adam_epsilon=1e-5`" in printed
    assert "| best | 1 | 4 | mean | deviation | 95 % | p |" in printed


def test_an_interrupted_sweep_goes_on_and_takes_more_seeds(bench):
    one = ("--a", "learning_rate=0.2", "--b", "learning_rate=0.3", "--seeds")
    bench.stops = {("seed-1", 2)}
    assert sweep(bench, *one, "1") == 130
    assert sweep(bench, *one, "1,2", "--metric", "loss") == 2  # of the last evaluation alone
    assert sweep(bench, *one, "1,2") == 0
    started = bench.contents("started")
    assert started.pop("a/seed-1") == "xx"
    assert started == dict.fromkeys(("a/seed-2", "b/seed-1", "b/seed-2"), "x")


def test_a_score_that_is_not_a_number_keeps_its_place(bench, capsys):
    """A correlation of constant predictions; the other seeds' scores are told all the same."""
    given = ("--a", "learning_rate=0.2", "--b", "learning_rate=0.6", "--seeds", "1,4")
    assert sweep(bench, *given) == 0
    path = bench.out / "a" / "seed-4" / "metrics.json"
    content = json.loads(path.read_text())
    content["last"]["acc"] = None
    path.write_text(json.dumps(content))
    capsys.readouterr()
    assert sweep(bench, *given) == 0
    found = summary(bench)
    assert found["last"]["a"]["values"] == [pytest.approx(0.79), None]
    assert {found["last"][row]["mean"] for row in ("a", "a - b")} == {None}
    assert found["last"]["b"]["std"] > 0
    assert "| a | 0.79 | nan | nan |  |  |  |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("own", "training", "message"),
    [
        (("--a", "x=1", "--seeds", "1,1"), (), "--seeds must be different whole numbers"),
        (("--a", "max_steps=1", "--seeds", "1"), ("--set=seed=3",), "seed is given twice"),
        (("--a", "README.md", "--seeds", "1"), (), "needs NAME=VALUE, got 'README.md'"),
        (("--a", "max_steps=1", "--seeds", "1", "--metric", "f1"), (), "a: no score 'f1'; it has"),
    ],
)
def test_what_cannot_be_run_is_refused(bench, capsys, own, training, message):
    assert sweep(bench, *own, training=training) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("sweep: ")
    assert message in line
