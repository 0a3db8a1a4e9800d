"""The search (``tools/search.py``): draw options of a space, train with them, keep the best.

A space is a YAML file of ``configs/search``: which options of a training command are drawn, from
what, and what is sought.

Everything is in the output folder: ``study.db`` (optuna's storage), ``search.json`` (what is
searched) and a folder for each trial. A trial that was interrupted or killed is continued; what is
drawn depends on the seed, the trial's number and the earlier trials only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import URL

from sot_paddle.atomic import write_atomically
from sot_paddle.command_line import OneLineParser
from sot_paddle.config import build_record, load_yaml, require_one_of
from sot_paddle.failures import NonFiniteLoss, NonFiniteState
from sot_paddle.search import trainings
from sot_paddle.search.trainings import COMMANDS, markdown_table

TABLE, CSV, BEST = "trials.md", "trials.csv", "best.yaml"
REASON = "reason"
"""User attribute of a failed trial: why it failed."""


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


def write_tables(study: optuna.Study, space: SearchSpace, folder: Path) -> None:
    """Write the trials as CSV, in the order of drawing, and as Markdown, best first."""
    frame = study.trials_dataframe(attrs=("number", "state", "value", "params", "user_attrs"))
    frame = frame.rename(columns={"number": "trial", "value": space.metric})
    frame.columns = [name.removeprefix("params_").removeprefix("user_attrs_") for name in frame]
    write_atomically(folder / CSV, frame.to_csv(index=False).encode())
    ranked = frame.sort_values(
        ["state", space.metric], ascending=[True, space.direction == "minimize"]
    )  # COMPLETE, FAIL, PRUNED
    ranked = ranked.astype(object).where(ranked.notna(), None)
    head = f"# {len(frame)} trials of {space.command}: {space.direction} {space.metric}\n\n"
    table = markdown_table(list(ranked), ranked.values.tolist())
    write_atomically(folder / TABLE, (head + table).encode())


def write_plots(study: optuna.Study, folder: Path) -> None:
    """Draw the scores by trial (trials.png) and by each drawn option (options.png)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots

    drawings = {"trials": plots.plot_optimization_history, "options": plots.plot_slice}
    for name, draw in drawings.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optuna calls its Matplotlib plots experimental
            draw(study)
            pyplot.savefig(folder / f"{name}.png")
        pyplot.close()


def write_best(
    best: FrozenTrial, options: Mapping[str, Any], space: SearchSpace, folder: Path
) -> None:
    """Write the options of the best trial as a file for the training command's ``--config``.

    All options of its training are given; of images those of the model have a key of their own.
    """
    best_options = {name: options[name] for name in best.params if name in options}
    of_model = [name for name in best.params if name not in options]
    if of_model:
        best_options["model_options"] = {name: options["model_options"][name] for name in of_model}
    text = f"# trial {best.number} of the search, {space.metric} {best.value:.6g}\n"
    text += yaml.safe_dump(json.loads(json.dumps(best_options)), sort_keys=False)
    write_atomically(folder / BEST, text.encode())


STORAGE = "study.db"
MAX_FAILURES = 3
"""In a row, after which a search stops: what is wrong is not what is drawn."""

DESCRIPTION = """\
Search hyper-parameters of a training command: draw options from a space, train with them, keep the
best. Each trial is a run of that command in a folder of its own. The same command goes on with a
search that was stopped or killed; finished trials are not repeated."""
EXAMPLES = """\
What stands after -- goes to the training command in every trial.

example:
  python tools/search.py --space my_space.yaml --output_dir OUT/pruned --trials 30 \\
      --pruner median -- --config my_options.yaml --eval_steps 20
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/search.py``; returns its exit status."""
    tool_words, training_words = trainings.split_arguments(arguments)
    return _parser().run(tool_words, lambda options: _run(options, training_words))


def _run(options: argparse.Namespace, training: Sequence[str]) -> None:
    space = read_space(options.space)
    if options.pruner is not None:
        space = dataclasses.replace(space, pruner=options.pruner)
    trials = space.trials if options.trials is None else options.trials
    for name, value, lowest in (("trials", trials, 1), ("seed", options.seed, 0)):
        if value < lowest:
            raise ValueError(f"--{name} must be at least {lowest}, got {value}")
    folder = Path(options.output_dir)
    search = Search(space, folder, training, options.seed, options.keep == "all")
    with trainings.open_folder(folder, "search.json", search.record()):
        study = search.run(trials)
        best = search.best(study)
        if best is None:
            raise ValueError(f"no trial has a score: {folder / TABLE} says why")
        write_plots(study, folder)
        write_best(best, trainings.all_options(space.command, training, best.params), space, folder)
        print(
            f"best of {len(study.trials)} trials: {space.metric} {best.value:.6g}, trial "
            f"{best.number}: {best.params}\ntable, plots and best.yaml: {folder}"
        )


@dataclass(frozen=True)
class Search:
    """A search in its folder; `arguments` are of the training command, in every trial."""

    space: SearchSpace
    folder: Path
    arguments: Sequence[str]
    seed: int
    keep_all: bool

    def record(self) -> dict[str, Any]:
        """What the search depends on; the options are of a trial that draws the last values."""
        last = {
            name: values.choices[-1] if isinstance(values, CategoricalDistribution) else values.high
            for name, values in self.space.parameters.items()
        }
        options = trainings.all_options(self.space.command, self.arguments, last)
        space = {name: str(value) for name, value in vars(self.space).items() if name != "trials"}
        return {"space": space, "seed of the search": self.seed, **options}

    def run(self, trials: int) -> optuna.Study:
        """Train until there are so many trials: complete, pruned and failed ones together."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        url = URL.create("sqlite", database=str((self.folder / STORAGE).resolve()))
        study = optuna.create_study(
            storage=url.render_as_string(),
            study_name="search",
            direction=self.space.direction,
            pruner=PRUNERS[self.space.pruner](),
            load_if_exists=True,
        )
        while True:
            running = study.get_trials(states=(TrialState.RUNNING,))
            if not running and len(study.trials) >= trials:
                return study
            trial = Trial(study, running[0]._trial_id) if running else study.ask()
            self._run_trial(study, trial)
            self._remove_weights(study)
            write_tables(study, self.space, self.folder)
            latest = study.trials[-MAX_FAILURES:]
            if [trial.state for trial in latest] == [TrialState.FAIL] * MAX_FAILURES:
                raise ValueError(
                    f"{MAX_FAILURES} trials failed one after the other, the last one because: "
                    f"{latest[-1].user_attrs[REASON]}"
                )

    def _run_trial(self, study: optuna.Study, trial: Trial) -> None:
        """Train with what a trial draws, and tell the study how it ended."""
        from sot_paddle.train.callbacks import WATCHES  # loads Paddle

        options, folder = self._draw(study, trial), self._folder(trial.number)

        def watch(step: int, steps: int, scores: Mapping[str, float]) -> None:
            """Report an evaluation; end the training where others did better at that step."""
            if self.space.metric not in scores:
                raise ValueError(
                    f"no score {self.space.metric!r}; the runs have {', '.join(scores)}"
                )
            if step not in self._scores(study, trial):  # a run that goes on repeats some
                trial.report(scores[self.space.metric], step)
            if step < steps and trial.should_prune():
                raise optuna.TrialPruned(f"ended at step {step}, the others do better")

        try:
            WATCHES.append(watch)
            trainings.train(self.space.command, self.arguments, folder, options)
            finite = list(filter(math.isfinite, self._scores(study, trial).values()))
            if not finite:
                raise NonFiniteLoss(f"{self.space.metric} was never a finite number")
            best = max(finite) if self.space.direction == "maximize" else min(finite)
            study.tell(trial, best)
            _say(f"trial {trial.number}: {self.space.metric} {best:.4f}")
        except optuna.TrialPruned as error:
            study.tell(trial, state=TrialState.PRUNED)
            _say(f"trial {trial.number}: {error}")
        except (ValueError, NonFiniteLoss, NonFiniteState) as error:
            if isinstance(error, ValueError) and not trial.number:
                (self.folder / STORAGE).unlink()
                raise
            trial.set_user_attr(REASON, str(error))
            study.tell(trial, state=TrialState.FAIL)
            _say(f"trial {trial.number} failed: {error}")
        finally:
            WATCHES.remove(watch)

    def _scores(self, study: optuna.Study, trial: Trial) -> Mapping[int, float]:
        return study.trials[trial.number].intermediate_values

    def _draw(self, study: optuna.Study, trial: Trial) -> dict[str, bool | int | float | str]:
        """Draw the options of a trial; each has random numbers of its own.

        They are made of (seed, trial, position of the option), so that a search that goes on after
        a kill neither repeats nor shifts any.
        """
        options = {}
        for position, (name, distribution) in enumerate(self.space.parameters.items()):
            numbers = np.random.SeedSequence([self.seed, trial.number, position])
            seed, startup = int(numbers.generate_state(1)[0]), self.space.startup_trials
            study.sampler = RandomSampler(seed)
            if self.space.sampler == "tpe":
                study.sampler = TPESampler(n_startup_trials=startup, seed=seed)
            options[name] = suggest(trial, name, distribution)
        return options

    def _folder(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:04d}"

    def best(self, study: optuna.Study) -> FrozenTrial | None:
        """The best trial, None where no trial has a score."""
        complete = study.get_trials(states=(TrialState.COMPLETE,))
        return study.best_trial if complete else None

    def _remove_weights(self, study: optuna.Study) -> None:
        """Remove the checkpoints of all trials but the best one; their scores stay."""
        best = self.best(study)
        for trial in () if self.keep_all else study.trials:
            folder = self._folder(trial.number)
            if best is None or trial.number != best.number:
                (folder / "last").unlink(missing_ok=True)
                for path in (*folder.glob("checkpoint-*"), folder / "best"):
                    shutil.rmtree(path, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> OneLineParser:
    parser = OneLineParser("search.py", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("--space", required=True, metavar="FILE", help="YAML file of a space (configs/search)")
    add("--output_dir", required=True, metavar="DIR", help="folder of this search")
    add("--trials", type=int, metavar="N", help="trials in all, later more [the space's]")
    add("--seed", type=int, default=0, metavar="N", help="of what is drawn [0]")
    add("--pruner", choices=PRUNERS, help="end trials that fall behind [the space's]")
    add("--keep", choices=("best", "all"), default="best", help="whose checkpoints stay [best]")
    return parser
