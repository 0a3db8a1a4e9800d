"""Configurations compared on several tasks: rates chosen on seeds apart, paired differences."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle import strict_json
from sot_paddle.atomic import write_atomically
from sot_paddle.config import build_record, load_yaml, require_one_of
from sot_paddle.search.paired_scores import SeedScores
from sot_paddle.search.run_record import open_folder, require_same
from sot_paddle.search.search_report import markdown_table
from sot_paddle.search.space import COMMANDS
from sot_paddle.search.sweep import RECORD as SWEEP
from sot_paddle.search.sweep import Sweep, cells
from sot_paddle.search.training_process import remove_weights

RECORD, SUMMARY, TABLE = "evidence.json", "summary.json", "summary.md"
RATE = "learning_rate"
WHICH = "last"
"""Of a run's evaluations: nothing is chosen on the development set but the rate, by other seeds."""

OWN = ("output_dir", "seed", "seeds", "task_name", "data_dir", "model_name_or_path", RATE)
"""Options that a plan does not name: each run gets its own."""


@dataclass(frozen=True)
class Plan:
    """What is compared; a YAML file of ``configs/evidence``.

    Attributes:
        command: training command.
        shared: options of every run.
        tasks: name of each task to what it adds to the shared options, in the order of running.
        configurations: name to what it adds to the shared options; all pairs are compared.
        learning_rates: from which each configuration's is chosen, for each task.
        rate_seeds: seeds of that choice.
        seeds: of the comparison, others than those.
    """

    command: str
    shared: dict
    tasks: dict
    configurations: dict
    learning_rates: tuple[float, ...]
    rate_seeds: tuple[int, ...]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        require_one_of("command", self.command, COMMANDS)
        for name, at_least in (("learning_rates", 2), ("rate_seeds", 1), ("seeds", 2)):
            values = getattr(self, name)
            if len(set(values)) < max(len(values), at_least):
                raise ValueError(
                    f"{name} must be {at_least} or more, all different, got {list(values)}"
                )
        if both := set(self.rate_seeds) & set(self.seeds):
            raise ValueError(f"seed {min(both)} would both choose a rate and be compared")
        if len(self.configurations) < 2:
            raise ValueError("configurations must be two or more, to be compared")
        if not self.tasks:
            raise ValueError("tasks must be one or more")
        for name in (*self.tasks, *self.configurations):
            if not re.fullmatch(r"\w[\w.-]*", str(name)):
                raise ValueError(f"{name!r} names a folder: letters, digits, '_', '-' and '.' only")
        adding = (*self.tasks.items(), *self.configurations.items())
        for where, options in (("shared", self.shared), *adding):
            if not isinstance(options, dict):
                raise ValueError(f"{where} must map options to values, got {options!r}")
            if wrong := [name for name in OWN if name in options]:
                raise ValueError(f"{where}: {wrong[0]} is each run's own here, leave it out")


def read_plan(path: str | Path) -> Plan:
    """Read the file of a plan.

    Raises:
        ValueError: not readable, an unknown or missing key, a wrong type or value.
    """
    return build_record(Plan, load_yaml(path), where=str(path))


@dataclass(frozen=True)
class Evidence:
    """A comparison in its folder.

    Attributes:
        plan: what is compared.
        tools: folder of the training commands.
        folder: output folder; the caller holds its lock.
        data: folder with one folder for each task.
        model: checkpoint to start from.
    """

    plan: Plan
    tools: Path
    folder: Path
    data: Path
    model: str

    def run(self, tasks: Sequence[str], count: int) -> dict[str, Any]:
        """Run what is not finished, seed by seed and of each seed task by task.

        The tables are written after each seed of a task, of all tasks and of the seeds that every
        configuration has finished. Weights are removed once a seed is finished.

        Args:
            tasks: of the plan's.
            count: of the plan's seeds; 0 writes the tables of what is finished.

        Returns:
            The content of summary.json.

        Raises:
            ValueError: a run was refused or failed.
            Interrupted: a training was interrupted.
        """
        asked = dataclasses.asdict(self.plan) | {"data": str(self.data), "model": self.model}
        later = ("tasks", "seeds")  # more may be asked for
        asked = {name: value for name, value in asked.items() if name not in later}
        require_same(self.folder / RECORD, asked)
        for at in range(count):
            for task in tasks:
                sweep = self._heads(task, self._rates(task))
                self._finish(sweep, self.plan.seeds[at : at + 1])
                self._write()
        return self._write()

    def _rates(self, task: str) -> dict[str, float]:
        """The rate of each configuration; runs what is not finished for its choice."""
        found = {}
        for name in self.plan.configurations:
            sweep = self._choice(task, name)
            found[name] = self._best(sweep, self._finish(sweep, self.plan.rate_seeds))
        return found

    def _finish(self, sweep: Sweep, seeds: Sequence[int]) -> dict[str, Any]:
        with open_folder(sweep.folder, SWEEP):
            for seed in seeds:
                sweep.run([seed])
                for name in sweep.configurations:
                    remove_weights(sweep.training(name, seed).folder)
            return sweep.run(seeds)

    def _best(self, sweep: Sweep, summary: Mapping[str, Any]) -> float:
        """The rate with the best mean; of equal ones the first of the plan, NaN last."""
        means = {rate: summary[WHICH][rate]["mean"] for rate in sweep.configurations}
        return float(max(means, key=lambda rate: (not math.isnan(means[rate]), means[rate])))

    def _choice(self, task: str, name: str) -> Sweep:
        """The runs that choose a configuration's rate."""
        rates = {str(rate): _words({RATE: rate}) for rate in self.plan.learning_rates}
        shared = [*self._shared(task), *_words(self.plan.configurations[name])]
        folder = self.folder / task / "rates" / name
        return Sweep(self.plan.command, self.tools, folder, shared, rates)

    def _heads(self, task: str, rates: Mapping[str, float]) -> Sweep:
        """The runs that are compared."""
        configurations = {
            name: _words({**options, RATE: rates[name]})
            for name, options in self.plan.configurations.items()
        }
        folder = self.folder / task / "compared"
        return Sweep(self.plan.command, self.tools, folder, self._shared(task), configurations)

    def _shared(self, task: str) -> list[str]:
        own = {"task_name": task, "data_dir": self.data / task, "model_name_or_path": self.model}
        return _words({**self.plan.shared, **self.plan.tasks[task], **own})

    def _write(self) -> dict[str, Any]:
        """Write the tables of what is finished; runs nothing."""
        summary = {}
        for task in self.plan.tasks:
            choices = {name: self._choice(task, name) for name in self.plan.configurations}
            wanted = self.plan.rate_seeds
            if any(len(sweep.finished(wanted)) < len(wanted) for sweep in choices.values()):
                continue
            rates = {name: self._best(sweep, sweep.run(wanted)) for name, sweep in choices.items()}
            sweep = self._heads(task, rates)
            if seeds := sweep.finished(self.plan.seeds):
                summary[task] = {"learning_rates": rates, **sweep.run(seeds)}
        write_atomically(
            self.folder / SUMMARY, strict_json.dumps(summary, strict_json.as_null).encode()
        )
        write_atomically(self.folder / TABLE, markdown(summary, len(self.plan.seeds)).encode())
        return summary


def _words(options: Mapping[str, Any]) -> list[str]:
    return [word for name in options for word in ("--set", f"{name}={_text(options[name])}")]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def markdown(summary: Mapping[str, Any], count: int) -> str:
    """One table of all tasks that have a finished seed, of so many seeds of the plan."""
    names = ["task", "score", "seeds", "of", "rate", "mean", "deviation", "95 %", "p"]
    rows = []
    for task, found in summary.items():
        rates = found["learning_rates"]
        of = f"{len(found['seeds'])} of {count}"
        for name, row in found[WHICH].items():
            scores = cells(SeedScores(**row), name not in rates)
            rows.append([task, found["metric"], of, name, rates.get(name), *scores])
    return "\n".join(markdown_table(names, rows)) + "\n"
