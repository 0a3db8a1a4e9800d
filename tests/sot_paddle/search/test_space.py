"""Search spaces as data: what is shipped, what is refused."""

import dataclasses
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sot_paddle.search.space import Parameter, SearchSpace, as_data, read_space
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.state_options import StateTrainConfig

ROOT = Path(__file__).resolve().parents[3]
SPACES = sorted((ROOT / "configs" / "search").glob("*.yaml"))
OPTIONS = {"train_glue": TrainConfig, "train_adapter": StateTrainConfig}
WHOLE = """
command: train_glue
metric: loss
direction: minimize
parameters:
  learning_rate: {kind: uniform, low: 0.0, high: 3.0e-5}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def distributions(space: SearchSpace) -> dict:
    trial = optuna.create_study().ask()
    for name, parameter in space.parameters.items():
        assert parameter.draw(name, trial) == trial.params[name]
    return trial.distributions


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_a_shipped_space_draws_options_of_its_command(path):
    space = read_space(path)
    options = {field.name for field in dataclasses.fields(OPTIONS[space.command])}
    assert set(space.parameters) <= options
    text = path.read_text(encoding="utf-8")
    for word in ("Published:", "Ours:", "Expected time:", f"--space configs/search/{path.name}"):
        assert word in text


def test_the_spaces_are_those_of_the_source():
    """specs.md C.4."""
    assert [path.stem for path in SPACES] == [
        "bertvision_adapter",
        "bertvision_lr",
        "bertvision_lr_seed",
    ]
    adapter, rate, seed = map(read_space, SPACES)
    assert distributions(adapter) == {
        "adapter_dim": CategoricalDistribution([2**power for power in range(3, 9)]),
        "learning_rate": FloatDistribution(1e-6, 1e-3),
        "seed": IntDistribution(1, 2000),
    }
    assert (adapter.trials, adapter.direction) == (6, "maximize")
    assert distributions(rate) == {"learning_rate": FloatDistribution(0.0, 3e-5)}
    assert (rate.trials, rate.metric, rate.direction) == (100, "loss", "minimize")
    assert distributions(seed)["seed"] == IntDistribution(0, 999)
    assert seed.maximise
    assert not rate.maximise


def test_what_is_remembered_of_a_space_leaves_out_the_number_of_trials(tmp_path):
    more = read_space(written(tmp_path, WHOLE + "trials: 7\n"))
    fewer = read_space(written(tmp_path, WHOLE))
    assert as_data(more) == as_data(fewer)
    assert (more.trials, fewer.trials) == (7, 100)
    other = read_space(written(tmp_path, WHOLE.replace("3.0e-5", "4.0e-5")))
    assert as_data(other) != as_data(more)


def test_a_log_uniform_is_drawn_by_its_logarithm():
    trial = optuna.create_study().ask()
    value = Parameter("log_uniform", 1e-6, 1e-3).draw("rate", trial)
    assert trial.distributions == {"rate": FloatDistribution(1e-6, 1e-3, log=True)}
    assert Parameter("log_uniform", 1e-6, 1e-3).draw("rate", trial) == value


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "metric: loss",
            "metrik: loss",
            "space.yaml: unknown option 'metrik'; did you",
        ),
        ("metric: loss", "metric: loss\nsampel: tpe", "unknown option 'sampel'; .*sampler"),
        ("train_glue", "train_glu", "command must be one of .*, got 'train_glu'"),
        ("minimize", "down", "direction must be one of minimize, maximize, got 'down'"),
        ("metric: loss", "metric: loss\npruner: all", "pruner must be one of none, median"),
        ("metric: loss", "metric: loss\nsampler: grid", "sampler must be one of tpe, random"),
        ("metric: loss", "metric: loss\ntrials: 0", "trials must be at least 1, got 0"),
        ("metric: loss", "metric: loss\ntrials: ten", "trials must be a whole number, got 'ten'"),
        ("metric: loss", "metric: loss\nstartup_trials: 0", "startup_trials must be at least 1"),
        ("high: 3.0e-5", "hihg: 3.0e-5", "parameter 'learning_rate': unknown option 'hihg'"),
        ("low: 0.0, ", "", "uniform needs low and high, and no values"),
        ("low: 0.0", "low: 0.1", "low must be below high, got 0.1 and 3e-05"),
        ("3.0e-5", ".inf", "low must be below high, got 0.0 and inf"),
        ("kind: uniform", "kind: log_uniform", "low of a log_uniform must be above 0"),
        ("kind: uniform", "kind: integer", "an integer needs whole bounds"),
        ("kind: uniform", "kind: normal", "kind must be one of uniform, log_uniform, integer"),
        ("kind: uniform", "kind: choice", "a choice has values, no low and no high"),
        ("low: 0.0, high: 3.0e-5", "low: 0, high: 1, values: [1, 2]", "and no values"),
        ("uniform, low: 0.0, high: 3.0e-5", "choice, values: [2, 2]", "all different"),
        ("uniform, low: 0.0, high: 3.0e-5", "choice, values: [2]", "two values or more"),
        ("uniform, low: 0.0, high: 3.0e-5", "choice", "two values or more"),
        ("{kind: uniform, low: 0.0, high: 3.0e-5}", "3.0e-5", "needs a kind: uniform"),
        ("learning_rate", "output_dir", "output_dir is each trial's own folder"),
        (
            "\n  learning_rate: {kind: uniform, low: 0.0, high: 3.0e-5}",
            " {}",
            "parameters must name one option at least",
        ),
        (
            "\n  learning_rate: {kind: uniform, low: 0.0, high: 3.0e-5}",
            " [learning_rate]",
            "parameters must map an option",
        ),
    ],
)
def test_a_bad_space_is_refused_by_name(tmp_path, old, new, message):
    assert WHOLE.count(old) == 1
    with pytest.raises(ValueError, match=message) as error:
        read_space(written(tmp_path, WHOLE.replace(old, new)))
    assert "space.yaml" in str(error.value)
