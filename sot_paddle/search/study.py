"""The search: draw options, train with them, remember the score; one trial after the other.

Everything is in the output folder: ``study.db`` (optuna's storage), ``search.json`` (what is
searched) and a folder for each trial. A search that was killed, even with SIGKILL, goes on with the
trial that was running; what is drawn depends on the seed, the trial's number and the earlier
trials only, so it ends as if it had not been killed.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import URL

from sot_paddle.search.run_record import require_same
from sot_paddle.search.space import COMMANDS, MAIN_METRIC, PRUNERS, SearchSpace, as_data
from sot_paddle.search.training_process import (
    Evaluation,
    Refused,
    Training,
    remove_weights,
    scores_by_step,
)

RECORD, STORAGE, TRIALS = "search.json", "study.db", "trials"
REASON = "reason"
"""User attribute of a failed trial: the line that its training ended with."""

MAX_FAILURES = 3
"""Failed trials in a row after which a search stops: what is wrong is not what is drawn."""

_NAME = "search"
_METRIC = "metric"  # user attribute of the study: the name that "main" stands for


@dataclass(frozen=True)
class Search:
    """A search in its folder.

    Attributes:
        space: what is drawn and sought.
        folder: output folder; the caller holds its lock.
        tools: folder of the training commands.
        arguments: of the training command, the same in every trial.
        seed: of what is drawn.
        keep_all: keep the checkpoints of every trial, not only of the best one.
    """

    space: SearchSpace
    folder: Path
    tools: Path
    arguments: Sequence[str]
    seed: int = 0
    keep_all: bool = False

    def open(self) -> optuna.Study:
        """Open the study of the folder, or begin it.

        Raises:
            ValueError: the folder holds something else, or a search for something else.
        """
        asked = {"space": as_data(self.space), "arguments": list(self.arguments), "seed": self.seed}
        require_same(self.folder / RECORD, asked, self.arguments)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        place = URL.create("sqlite", database=str((self.folder / STORAGE).resolve()))
        return optuna.create_study(
            storage=RDBStorage(place.render_as_string()),
            study_name=_NAME,
            direction=self.space.direction,
            pruner=PRUNERS[self.space.pruner](),
            load_if_exists=True,
        )

    def run(self, study: optuna.Study, trials: int, report: Callable[[optuna.Study], None]) -> None:
        """Go on until the study has so many trials: complete, pruned and failed ones together.

        Args:
            study: of :meth:`open`.
            trials: how many.
            report: called after each trial.

        Raises:
            ValueError: the first trial was refused, which leaves nothing behind, or `MAX_FAILURES`
                failed one after the other.
            Interrupted: the training was interrupted; Ctrl-C stays a KeyboardInterrupt.
        """
        failures = 0
        while True:
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if not running and len(study.trials) >= trials:
                break
            trial = self._run_trial(study, running[0] if running else None)
            self._clear(study)
            report(study)
            failures = failures + 1 if trial.state == TrialState.FAIL else 0
            if failures == MAX_FAILURES:
                raise ValueError(
                    f"{failures} trials failed one after the other, the last one because: "
                    f"{trial.user_attrs[REASON]}"
                )
        self._clear(study)
        report(study)

    def folder_of(self, number: int) -> Path:
        """The folder of a trial."""
        return self.folder / TRIALS / f"{number:04d}"

    def _run_trial(self, study: optuna.Study, running: FrozenTrial | None) -> FrozenTrial:
        """Run a new trial, or go on with one; returns it finished."""
        trial = study.ask() if running is None else Trial(study, running._trial_id)
        options = draw(study, trial, self.space, self.seed)
        say(f"trial {trial.number}: {shown(options)}")
        pruning = self._pruning(study, trial)
        try:
            metrics = self._training(trial.number, options).run(pruning)
        except Refused as error:
            if not error.begun and not trial.number:
                self._remove()
                raise ValueError(f"{self.space.command} refused the first trial: {error}") from None
            return _fail(study, trial, str(error))
        if pruning is not None and pruning.pruned:
            return study.tell(trial, state=TrialState.PRUNED)
        return self._judge(study, trial, metrics)

    def _training(self, number: int, options: Mapping[str, Any]) -> Training:
        arguments = [*COMMANDS[self.space.command], *self.arguments, *assigned(options)]
        return Training(self.tools / f"{self.space.command}.py", arguments, self.folder_of(number))

    def _pruning(self, study: optuna.Study, trial: Trial) -> _Pruning | None:
        if self.space.pruner == "none":
            return None
        main = self.space.metric == MAIN_METRIC
        metric = study.user_attrs.get(_METRIC) if main else self.space.metric
        return None if metric is None else _Pruning(trial, metric)

    def _judge(self, study: optuna.Study, trial: Trial, metrics: Mapping[str, Any]) -> FrozenTrial:
        """Remember the best score of a finished training."""
        name = self.space.metric
        if name == MAIN_METRIC:
            name = metrics.get("metric", MAIN_METRIC)
            study.set_user_attr(_METRIC, name)
        scores = scores_by_step(metrics, name)
        reported = _values(study, trial)
        for step in scores.keys() - reported.keys():
            trial.report(scores[step], step)
        finite = [score for score in scores.values() if math.isfinite(score)]
        if not finite:
            return _fail(study, trial, f"{name} is not a finite number")
        best = max(finite) if self.space.maximise else min(finite)
        say(f"trial {trial.number}: {name} {best:.4f}")
        return study.tell(trial, best)

    def _clear(self, study: optuna.Study) -> None:
        """Remove the weights of all finished trials but the best one."""
        if self.keep_all:
            return
        finished = [trial for trial in study.trials if trial.state.is_finished()]
        best = study.best_trial.number if complete(study) else None
        for number in (trial.number for trial in finished if trial.number != best):
            remove_weights(self.folder_of(number))

    def _remove(self) -> None:
        """Take back a search whose first trial was refused."""
        shutil.rmtree(self.folder / TRIALS, ignore_errors=True)
        (self.folder / STORAGE).unlink()


class _Pruning:
    """Reports each evaluation to the study and asks whether the trial is to end."""

    def __init__(self, trial: Trial, metric: str) -> None:
        self.pruned = False
        self._trial, self._metric = trial, metric
        self._known = set(_values(trial.study, trial))

    def __call__(self, evaluation: Evaluation) -> bool:
        if self._metric not in evaluation.scores:
            known = ", ".join(evaluation.scores)
            raise ValueError(f"the runs have no score {self._metric!r}; they have {known}")
        if evaluation.step not in self._known:  # a run that goes on repeats some
            self._trial.report(evaluation.scores[self._metric], evaluation.step)
        last = evaluation.step >= evaluation.steps
        self.pruned = self.pruned or (not last and self._trial.should_prune())
        if self.pruned:
            say(
                f"trial {self._trial.number}: ended at step {evaluation.step}, the others do better"
            )
        return self.pruned


def draw(
    study: optuna.Study, trial: Trial, space: SearchSpace, seed: int
) -> dict[str, bool | int | float | str]:
    """Draw the options of a trial, by name; those that it has already stay.

    Each draw has random numbers of its own, made of (seed, trial, place of the option), so that a
    search that goes on after a kill neither repeats nor shifts any. The study's sampler changes.
    """
    options = {}
    for place, (name, parameter) in enumerate(space.parameters.items()):
        numbers = np.random.SeedSequence([seed, trial.number, place])
        study.sampler = _sampler(space, int(numbers.generate_state(1)[0]))
        options[name] = parameter.draw(name, trial)
    return options


def _sampler(space: SearchSpace, seed: int) -> BaseSampler:
    if space.sampler == "random":
        return RandomSampler(seed=seed)
    return TPESampler(n_startup_trials=space.startup_trials, multivariate=False, seed=seed)


def complete(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that were trained to their end and have a score."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def assigned(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line."""
    return [word for name, value in options.items() for word in ("--set", f"{name}={value}")]


def shown(options: Mapping[str, Any]) -> str:
    """Options in a line of text."""
    return ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in options.items()
    )


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def _values(study: optuna.Study, trial: Trial) -> dict[int, float]:
    return study.get_trials(deepcopy=False)[trial.number].intermediate_values


def _fail(study: optuna.Study, trial: Trial, reason: str) -> FrozenTrial:
    trial.set_user_attr(REASON, reason)
    say(f"trial {trial.number} failed: {reason}")
    return study.tell(trial, state=TrialState.FAIL)
