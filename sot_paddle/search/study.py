"""The search (``tools/search.py``): draw options of a space, train with them, keep the best.

A space is a YAML file of ``configs/search``: which options of a training command are drawn, from
what, and what is sought.

Everything is in the output folder: ``study.db`` (optuna's storage), ``search.json`` (what is
searched) and a folder for each trial. A trial that was interrupted or killed is continued; what is
drawn depends on the seed, the trial's number and the earlier trials only.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import URL

from sot_paddle.atomic import remove, write_atomically
from sot_paddle.cli import CommandParser, NonFinite
from sot_paddle.config import build_record, load_yaml, require_one_of, require_positive
from sot_paddle.search import trainings

STORAGE, TABLE, TRIAL = "study.db", "trials.csv", "trials/{:04d}"
DRAWN: Mapping[str, Callable[..., Any]] = {
    "uniform": lambda low, high: FloatDistribution(float(low), float(high)),
    "log_uniform": lambda low, high: FloatDistribution(float(low), float(high), log=True),
    "integer": lambda low, high: IntDistribution(index(low), index(high)),
    "choice": lambda values: CategoricalDistribution(values),
}
"""Kind of a parameter -> optuna's distribution of its other keys; bounds are included."""

PRUNERS: Mapping[str, type[BasePruner]] = {
    "none": NopPruner,
    "median": MedianPruner,
    "halving": SuccessiveHalvingPruner,
}
"""Ways to end a trial whose evaluations fall behind those of others."""

DESCRIPTION = """\
Search hyper-parameters of a training command: draw options from a space, train with them, keep the
best. Each trial is a run of that command in a folder of its own. The same command goes on with a
search that was stopped or killed; finished trials are not repeated."""
EXAMPLES = """\
What stands after -- goes to the training command in every trial.

example:
  python tools/search.py --space my_space.yaml --output_dir OUT/search --trials 30 -- \\
      --config my_options.yaml
"""


@dataclass(frozen=True)
class SearchSpace:
    """What a search draws and seeks."""

    command: str
    metric: str  # of the development set; ``main``: the one that chooses the best checkpoint
    direction: str
    parameters: dict  # option of the command to optuna's distribution, in the order of drawing
    trials: int = 100
    startup_trials: int = 20  # drawn at random before TPE begins (hyperopt: 20)
    pruner: str = "none"  # of `PRUNERS`; it needs several evaluations in a run

    def __post_init__(self) -> None:
        require_one_of("command", self.command, trainings.COMMANDS)
        require_one_of("direction", self.direction, ("minimize", "maximize"))
        require_one_of("pruner", self.pruner, PRUNERS)
        require_positive("trials", self.trials)
        if not self.parameters or "output_dir" in self.parameters:
            raise ValueError("parameters must name one option at least, and not output_dir")


def read_space(path: str | Path) -> SearchSpace:
    """Read the YAML file of a search space; what is wrong with it is a ValueError."""
    values = load_yaml(path)
    parameters = values["parameters"] = values.get("parameters") or {}
    for name, keys in parameters.items() if isinstance(parameters, dict) else ():
        try:
            keys = dict(keys)
            parameters[name] = DRAWN[keys.pop("kind", None)](**keys)
        except (KeyError, TypeError, ValueError) as error:
            kinds = f"expected a kind of {', '.join(DRAWN)} with its keys"
            raise ValueError(f"{path}: parameter {name!r}: {kinds}, got {error}") from error
    return build_record(SearchSpace, values, where=str(path))


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/search.py``."""
    parser = CommandParser(prog="search.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("--space", required=True, metavar="FILE", help="YAML file of a space (configs/search)")
    add("--output_dir", required=True, metavar="DIR", help="folder of this search")
    add("--trials", type=int, metavar="N", help="trials in all, later more [the space's]")
    add("--seed", type=int, default=0, metavar="N", help="of what is drawn [0]")
    tool_words, training = trainings.split_arguments(arguments)
    options = parser.parse_args(tool_words)
    space, folder = read_space(options.space), Path(options.output_dir)
    if options.trials is not None:
        space = dataclasses.replace(space, trials=options.trials)
    search = Search(space, folder, training, options.seed)
    with trainings.open_folder(folder, "search.json", search.record()):
        best = search.run()
    if best is None:
        raise ValueError(f"no trial has a score: {folder / TABLE} says why")
    print(f"best of {space.trials} trials: {space.metric} {best.value:.6g}, trial {best.number}:")
    print(" ".join(trainings.assigned(best.params)))


@dataclass(frozen=True)
class Search:
    """A search in its folder; `arguments` are of the training command, in every trial."""

    space: SearchSpace
    folder: Path
    arguments: Sequence[str]
    seed: int

    def record(self) -> dict[str, Any]:
        """What the search depends on; the options are of a trial that draws the last values."""
        last = {
            name: values.choices[-1] if isinstance(values, CategoricalDistribution) else values.high
            for name, values in self.space.parameters.items()
        }
        options = trainings.all_options(self.space.command, self.arguments, last)
        space = {name: str(value) for name, value in vars(self.space).items() if name != "trials"}
        return {"space": space, "seed of the search": self.seed, **options}

    def run(self) -> FrozenTrial | None:
        """Train until there are as many trials as asked for, failed ones too; the best, if any."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        url = str(URL.create("sqlite", database=str((self.folder / STORAGE).resolve())))
        study = optuna.create_study(
            storage=url,
            study_name="search",
            direction=self.space.direction,
            pruner=PRUNERS[self.space.pruner](),
            load_if_exists=True,
        )
        while True:
            running = study.get_trials(states=(TrialState.RUNNING,))
            best = study.best_trial if study.get_trials(states=(TrialState.COMPLETE,)) else None
            if study.trials:
                table = study.trials_dataframe(("number", "state", "value", "params", "user_attrs"))
                write_atomically(self.folder / TABLE, table.to_csv(index=False).encode())
            self._remove_weights(study, best)
            if not running and len(study.trials) >= self.space.trials:
                return best
            trial = Trial(study, running[0]._trial_id) if running else study.ask()
            self._run_trial(study, trial)

    def _run_trial(self, study: optuna.Study, trial: Trial) -> None:
        """Train with what a trial draws, and tell the study how it ended."""
        from sot_paddle.train.callbacks import WATCHES  # loads Paddle

        reported = study.trials[trial.number].intermediate_values

        def watch(step: int, steps: int, scores: Mapping[str, float]) -> None:
            """Report an evaluation; end the training where others did better at that step."""
            # one that goes on repeats some
            if self.space.metric in scores and step not in reported:
                trial.report(scores[self.space.metric], step)
            if step < steps and trial.should_prune():
                raise optuna.TrialPruned(f"ended at step {step}, the others do better")

        folder, options = self.folder / TRIAL.format(trial.number), self._draw(study, trial)
        WATCHES.append(watch)
        try:
            metrics = trainings.train(self.space.command, self.arguments, folder, options)
            score = self._score(metrics)
            study.tell(trial, score)
            outcome = f"{self.space.metric} {score:.4f}"
        except optuna.TrialPruned as error:
            study.tell(trial, state=TrialState.PRUNED)
            outcome = str(error)
        except (ValueError, NonFinite) as error:
            if isinstance(error, ValueError) and not trial.number:
                (self.folder / STORAGE).unlink()
                raise
            trial.set_user_attr("reason", str(error))
            study.tell(trial, state=TrialState.FAIL)
            outcome = f"failed: {error}"
        finally:
            WATCHES.remove(watch)
        print(f"trial {trial.number}: {outcome}", file=sys.stderr, flush=True)

    def _draw(self, study: optuna.Study, trial: Trial) -> dict[str, bool | int | float | str]:
        """Draw the options of a trial; each has random numbers of its own.

        They are made of (seed, trial, position of the option), so that a search that goes on after
        a kill neither repeats nor shifts any.
        """
        options = {}
        for position, (name, distribution) in enumerate(self.space.parameters.items()):
            numbers = np.random.SeedSequence([self.seed, trial.number, position])
            study.sampler = optuna.samplers.TPESampler(
                n_startup_trials=self.space.startup_trials, seed=int(numbers.generate_state(1)[0])
            )
            options[name] = trial._suggest(name, distribution)  # what it has already is returned
        return options

    def _score(self, metrics: Mapping[str, Any]) -> float:
        """The best of what the evaluations of a run say."""
        name = metrics["metric"] if self.space.metric == "main" else self.space.metric
        evaluations = list(metrics["evaluations"].values())
        if not all(name in scores for scores in evaluations):
            raise ValueError(f"no score {name!r}; the runs have {', '.join(evaluations[0])}")
        finite = [scores[name] for scores in evaluations if scores[name] is not None]
        if not finite:
            raise NonFinite(f"{name} was never a finite number")
        return max(finite) if self.space.direction == "maximize" else min(finite)

    def _remove_weights(self, study: optuna.Study, best: FrozenTrial | None) -> None:
        """Remove the checkpoints of all trials that have ended but the best; their scores stay."""
        for trial in study.trials:
            folder = self.folder / TRIAL.format(trial.number)
            if trial.state.is_finished() and (best is None or trial.number != best.number):
                for path in (*folder.glob("checkpoint-*"), folder / "best", folder / "last"):
                    remove(path)
