"""A seeds sweep: configurations of a training command, each with the same seeds."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle import strict_json
from sot_paddle.atomic import write_atomically
from sot_paddle.search.many_runs import run_unwatched
from sot_paddle.search.paired_scores import SeedScores, paired_difference, seed_scores
from sot_paddle.search.run_record import require_same
from sot_paddle.search.search_report import markdown_table
from sot_paddle.search.space import COMMANDS
from sot_paddle.search.training_process import Training

RECORD, SUMMARY, TABLE = "sweep.json", "summary.json", "summary.md"
EVALUATIONS = ("best", "last")
"""What of a run is compared: its best evaluation and its last one."""

DIFFERENCE = "{} - {}"
"""Name of the row of two configurations."""


@dataclass(frozen=True)
class Sweep:
    """A sweep in its folder.

    Attributes:
        command: training command, one of ``COMMANDS``.
        tools: folder of the training commands.
        folder: output folder; the caller holds its lock.
        shared: options of the training command in every run.
        configurations: name (``a``, ``b``) to what it adds to them; all pairs are compared.
        metric: score to compare, None for the command's own.
        confidence: of the intervals, in (0, 1).
    """

    command: str
    tools: Path
    folder: Path
    shared: Sequence[str]
    configurations: Mapping[str, Sequence[str]]
    metric: str | None = None
    confidence: float = 0.95

    def run(self, seeds: Sequence[int]) -> dict[str, Any]:
        """Run what is not finished, seed by seed, and write the summary.

        Args:
            seeds: all different; later more may be asked for.

        Returns:
            The content of summary.json.

        Raises:
            ValueError: a run was refused or failed, or has no such score.
            Interrupted: a training was interrupted; Ctrl-C stays a KeyboardInterrupt.
        """
        asked = {"command": self.command, "shared": list(self.shared)}
        words = [*self.shared, *itertools.chain(*self.configurations.values())]
        asked |= {"configurations": self.configurations}
        require_same(self.folder / RECORD, asked, words)
        found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in self.configurations}
        for seed in seeds:
            for name in self.configurations:
                training = self.training(name, seed)
                found[name].append(run_unwatched(training, f"{name}, seed {seed}"))
        summary = self._summary(seeds, found)
        write_atomically(
            self.folder / SUMMARY, strict_json.dumps(summary, strict_json.as_null).encode()
        )
        write_atomically(self.folder / TABLE, markdown(summary).encode())
        return summary

    def training(self, name: str, seed: int) -> Training:
        """The run of a configuration with a seed."""
        tool = self.tools / f"{self.command}.py"
        arguments = [*COMMANDS[self.command], *self.shared, *self.configurations[name]]
        folder = self.folder / name / f"seed-{seed}"
        return Training(tool, [*arguments, "--set", f"seed={seed}"], folder)

    def finished(self, seeds: Sequence[int]) -> list[int]:
        """Those of the seeds that every configuration has finished."""
        names = self.configurations
        return [seed for seed in seeds if all(self.training(n, seed).metrics() for n in names)]

    def _summary(
        self, seeds: Sequence[int], found: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> dict[str, Any]:
        metric = self.metric or next(iter(found.values()))[0]["metric"]
        content: dict[str, Any] = {
            "command": self.command,
            "configurations": {name: " ".join(more) for name, more in self.configurations.items()},
            "shared": " ".join(self.shared),
            "metric": metric,
            "seeds": list(seeds),
            "confidence": self.confidence,
        }
        for which in EVALUATIONS:
            values = {
                name: [
                    _score(run, which, metric, f"{name}, seed {seed}")
                    for seed, run in zip(seeds, runs, strict=True)
                ]
                for name, runs in found.items()
            }
            lines = {name: seed_scores(of, self.confidence) for name, of in values.items()}
            for one, other in itertools.combinations(values, 2):
                row = paired_difference(values[one], values[other], self.confidence)
                lines[DIFFERENCE.format(one, other)] = row
            content[which] = {name: dataclasses.asdict(line) for name, line in lines.items()}
        return content


def _score(run: Mapping[str, Any], which: str, metric: str, where: str) -> float:
    scores = run.get(which, {})
    if metric not in scores:
        raise ValueError(f"{where}: no score {metric!r}; it has {', '.join(scores) or 'none'}")
    return math.nan if scores[metric] is None else scores[metric]


def markdown(summary: Mapping[str, Any]) -> str:
    """The summary as a page: a table for the best and one for the last evaluations."""
    percent = f"{100 * summary['confidence']:g} %"
    lines = [f"# {summary['metric']} of {len(summary['seeds'])} seeds", ""]
    lines += [f"- {name}: `{text}`" for name, text in summary["configurations"].items()]
    lines += [f"- {'all' if len(summary['configurations']) > 2 else 'both'}: `{summary['shared']}`"]
    for which in EVALUATIONS:
        names = [which, *map(str, summary["seeds"]), "mean", "deviation", percent, "p"]
        rows = [
            [name, *row["values"], *cells(SeedScores(**row), name not in summary["configurations"])]
            for name, row in summary[which].items()
        ]
        lines += ["", *markdown_table(names, rows)]
    return "\n".join(lines) + "\n"


def cells(row: SeedScores, difference: bool) -> list[Any]:
    """Mean, deviation, interval and, of a difference, p; for :func:`markdown_table`."""
    interval = None if row.low is None else f"{row.low:.4f} to {row.high:.4f}"
    return [row.mean, row.std, interval, row.p_value if difference else None]
