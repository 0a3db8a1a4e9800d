"""Search spaces as data: what is shipped, what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sot_paddle.search.space import read_space, suggest
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.state_options import StateTrainConfig

ROOT = Path(__file__).resolve().parents[3]
SPACES = sorted((ROOT / "configs" / "search").glob("*.yaml"))
OPTIONS = {"train_glue": TrainConfig, "train_adapter": StateTrainConfig}
DRAWN = "{kind: uniform, low: 0.0, high: 3.0e-5}"
WHOLE = f"command: train_glue\nmetric: loss\ndirection: minimize\nparameters:\n  x: {DRAWN}\n"


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


def test_each_kind_is_drawn_once(tmp_path):
    path = tmp_path / "space.yaml"
    log = "{kind: log_uniform, low: 1e-6, high: 1.0e-3}"  # YAML reads 1e-6 as text
    path.write_text(WHOLE + f"  y: {log}\n  z: {{kind: integer, low: 2, high: 5}}\n", "utf-8")
    space, trial = read_space(path), optuna.create_study().ask()
    drawn = {name: suggest(trial, name, space.parameters[name]) for name in space.parameters}
    again = {name: suggest(trial, name, space.parameters[name]) for name in space.parameters}
    assert drawn == again == trial.params
    log, whole = FloatDistribution(1e-6, 1e-3, log=True), IntDistribution(2, 5)
    assert trial.distributions == {"x": FloatDistribution(0.0, 3e-5), "y": log, "z": whole}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric: loss", "metrik: loss", ".*metri[ck]"),
        ("metric: loss", "metric: loss\nsampel: tpe", "unknown option 'sampel'; .*sampler"),
        ("train_glue", "train_glu", "command must be one of .*, got 'train_glu'"),
        ("minimize", "down", "direction must be one of minimize, maximize, got 'down'"),
        ("metric: loss", "metric: loss\npruner: all", "pruner must be one of none, median"),
        ("metric: loss", "metric: loss\ntrials: 0", "trials must be at least 1, got 0"),
        ("high: 3.0e-5", "hihg: 3.0e-5", "parameter 'x': .*'hihg'"),
        ("low: 0.0, ", "", "parameter 'x': .*'low'"),
        ("low: 0.0", "low: 0.1", "parameter 'x': `low <= high` must hold"),
        ("kind: uniform", "kind: integer", "parameter 'x': 'float' object cannot"),
        ("kind: uniform", "kind: normal", "parameter 'x' needs a kind: uniform, log_uniform"),
        (DRAWN, "3.0e-5", "parameter 'x': 'float' object is not iterable"),
        ("  x:", "  output_dir:", "must name one option at least, and not output_dir"),
        (f"\n  x: {DRAWN}", " [x]", "parameters"),
    ],
)
def test_a_bad_space_is_refused_by_name(tmp_path, old, new, message):
    assert WHOLE.count(old) == 1
    path = tmp_path / "space.yaml"
    path.write_text(WHOLE.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=f"space.yaml: .*{message}"):
        read_space(path)
