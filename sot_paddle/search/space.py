"""Search spaces: which options of a training command are drawn, from what, and what is sought.

A space is a YAML file of ``configs/search``. Unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import Trial

from sot_paddle.config import build_record, load_yaml, require_one_of
from sot_paddle.search.trainings import COMMANDS

PRUNERS: Mapping[str, type[BasePruner]] = {
    "none": NopPruner,
    "median": MedianPruner,
    "halving": SuccessiveHalvingPruner,
}
DRAWN: Mapping[str, Callable[..., BaseDistribution]] = {
    "uniform": lambda low, high: FloatDistribution(float(low), float(high)),
    "log_uniform": lambda low, high: FloatDistribution(float(low), float(high), log=True),
    "integer": lambda low, high: IntDistribution(index(low), index(high)),
    "choice": lambda values: CategoricalDistribution(values),
}
"""Kind of a parameter -> optuna's distribution of its other keys; bounds are included."""


@dataclass(frozen=True)
class SearchSpace:
    """What a search draws and seeks.

    Attributes:
        metric: score of the development set; ``main`` for the one that chooses the best checkpoint.
        parameters: option of the command to optuna's distribution, in the order of drawing.
        startup_trials: that ``tpe`` draws at random first (hyperopt: 20).
    """

    command: str
    metric: str
    direction: str
    parameters: dict
    trials: int = 100
    sampler: str = "tpe"
    startup_trials: int = 20
    pruner: str = "none"

    def __post_init__(self) -> None:
        require_one_of("command", self.command, COMMANDS)
        require_one_of("direction", self.direction, ("minimize", "maximize"))
        require_one_of("sampler", self.sampler, ("tpe", "random"))
        require_one_of("pruner", self.pruner, PRUNERS)
        if not self.parameters or "output_dir" in self.parameters:
            raise ValueError("parameters must name one option at least, and not output_dir")
        for name in ("trials", "startup_trials"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def read_space(path: str | Path) -> SearchSpace:
    """Read the YAML file of a search space; what is wrong with it is a ValueError."""
    values = load_yaml(path)
    parameters = values["parameters"] = values.get("parameters") or {}
    for name, keys in parameters.items() if isinstance(parameters, dict) else ():
        try:
            keys = dict(keys)
            parameters[name] = DRAWN[keys.pop("kind", None)](**keys)
        except KeyError as error:
            raise ValueError(
                f"{path}: parameter {name!r} needs a kind: {', '.join(DRAWN)}"
            ) from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: parameter {name!r}: {error}") from error
    return build_record(SearchSpace, values, where=str(path))


def suggest(trial: Trial, name: str, distribution: BaseDistribution) -> bool | int | float | str:
    """Draw an option of a trial; one that it has already is returned."""
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    draw = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
    return draw(name, distribution.low, distribution.high, log=distribution.log)
