"""Search spaces: which options of a training command are drawn, from what, and what is sought.

A space is a YAML file of ``configs/search``. Unknown keys are refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import Trial

from sot_paddle.config import build_record, load_yaml, require_one_of

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "train_adapter": ("--do_train", "--do_eval"),
    "train_glue": ("--do_train", "--do_eval"),
    "train_image": (),
    "train_squad": ("--do_train", "--do_eval"),
    "train_text": ("--do_train", "--do_eval"),
}
"""Training commands, and the flags without which they would not train or evaluate."""

DIRECTIONS = ("minimize", "maximize")
SAMPLERS = ("tpe", "random")
PRUNERS: Mapping[str, type[BasePruner]] = {
    "none": NopPruner,
    "median": MedianPruner,
    "halving": SuccessiveHalvingPruner,
}
MAIN_METRIC = "main"
"""Stands for the metric by which a run chooses its best checkpoint."""

_CHOICE = "choice"
_NUMBERS = ("uniform", "log_uniform", "integer")


@dataclass(frozen=True)
class Parameter:
    """From what one option is drawn.

    Attributes:
        kind: ``uniform``, ``log_uniform`` or ``integer`` between two bounds (an integer's are both
            drawn), or ``choice`` among values.
        low: lower bound.
        high: upper bound.
        values: what ``choice`` chooses from.
    """

    kind: str
    low: float | None = None
    high: float | None = None
    values: tuple[bool | int | float | str, ...] | None = None

    def __post_init__(self) -> None:
        require_one_of("kind", self.kind, (*_NUMBERS, _CHOICE))
        if self.kind == _CHOICE:
            self._check_choice()
        else:
            self._check_bounds()

    def _check_choice(self) -> None:
        if self.low is not None or self.high is not None:
            raise ValueError("a choice has values, no low and no high")
        values = self.values or ()
        if len({repr(value) for value in values}) != len(values) or len(values) < 2:
            raise ValueError(f"a choice needs two values or more, all different, got {values}")

    def _check_bounds(self) -> None:
        if self.values is not None or self.low is None or self.high is None:
            raise ValueError(f"{self.kind} needs low and high, and no values")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")
        if self.kind == "log_uniform" and self.low <= 0:
            raise ValueError(f"low of a log_uniform must be above 0, got {self.low}")
        if self.kind == "integer" and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"an integer needs whole bounds, got {self.low} and {self.high}")

    def draw(self, name: str, trial: Trial) -> bool | int | float | str:
        """Draw a value for a trial; one that the trial has already is returned."""
        if self.kind == _CHOICE:
            return trial.suggest_categorical(name, self.values)
        if self.kind == "integer":
            return trial.suggest_int(name, int(self.low), int(self.high))
        return trial.suggest_float(name, self.low, self.high, log=self.kind == "log_uniform")


@dataclass(frozen=True)
class SearchSpace:
    """What a search draws and seeks.

    Attributes:
        command: training command, one of ``COMMANDS``.
        metric: score of the development set, such as ``loss``; ``main`` for the command's own.
        direction: ``minimize`` or ``maximize`` it.
        parameters: option of the command to what it is drawn from, in the order of drawing.
        trials: runs, unless the command line says otherwise.
        sampler: ``tpe`` (tree of Parzen estimators, each option by itself) or ``random``.
        startup_trials: trials that ``tpe`` draws at random first (hyperopt: 20).
        pruner: ``none``, ``median`` (ends a trial that is worse at a step than the median of the
            others) or ``halving`` (successive halving by steps).
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
        require_one_of("command", self.command, tuple(COMMANDS))
        require_one_of("direction", self.direction, DIRECTIONS)
        require_one_of("sampler", self.sampler, SAMPLERS)
        require_one_of("pruner", self.pruner, PRUNERS)
        if not self.parameters:
            raise ValueError("parameters must name one option at least")
        if "output_dir" in self.parameters:
            raise ValueError("output_dir is each trial's own folder: it cannot be drawn")
        for name, lowest in (("trials", 1), ("startup_trials", 1)):
            if getattr(self, name) < lowest:
                raise ValueError(f"{name} must be at least {lowest}, got {getattr(self, name)}")

    @property
    def maximise(self) -> bool:
        """Whether more is better."""
        return self.direction == "maximize"


def read_space(path: str | Path) -> SearchSpace:
    """Read the YAML file of a search space.

    Raises:
        ValueError: not readable, an unknown or missing key, a wrong type or value.
    """
    values = load_yaml(path)
    drawn = values.get("parameters", {})
    if not isinstance(drawn, dict):
        raise ValueError(f"{path}: parameters must map an option to what it is drawn from")
    parameters = {}
    for name, value in drawn.items():
        where = f"{path}: parameter {name!r}"
        if not isinstance(value, dict) or "kind" not in value:
            raise ValueError(f"{where} needs a kind: {', '.join((*_NUMBERS, _CHOICE))}")
        parameters[str(name)] = build_record(Parameter, value, where=where)
    return build_record(SearchSpace, {**values, "parameters": parameters}, where=str(path))


def as_data(space: SearchSpace) -> dict[str, Any]:
    """The space as it is remembered: JSON-ready, without the number of trials."""
    values = dataclasses.asdict(space)
    values.pop("trials")
    return values
