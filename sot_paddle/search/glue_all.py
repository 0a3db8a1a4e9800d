"""All of GLUE, again and again: runs, the tasks that start from MNLI, one table, test files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sot_paddle import strict_json
from sot_paddle.atomic import write_atomically
from sot_paddle.reading import read_bytes
from sot_paddle.search.glue_recipes import FROM_MNLI, ORDER, TABLES, seed_of
from sot_paddle.search.many_runs import run_unwatched
from sot_paddle.search.run_record import require_same
from sot_paddle.search.space import COMMANDS
from sot_paddle.search.training_process import OUTPUT, Training

RECORD, SUMMARY, TABLE, TESTS = "glue_all.json", "summary.json", "summary.md", "test_files"
_MNLI = ORDER[0]


@dataclass(frozen=True)
class GlueAll:
    """Every task of GLUE, several times, in a folder.

    Attributes:
        tools: folder of the training commands.
        folder: output folder; the caller holds its lock.
        data: folder with one folder for each task.
        model: checkpoint to start from.
        table: a key of `TABLES`.
        tasks: of `ORDER`, in its order.
        seed: moves the published seeds, 42 for none.
        largest: batch at most; steps are not changed where it bites, as published.
        shared: further options of the training command.
    """

    tools: Path
    folder: Path
    data: Path
    model: str
    table: str
    tasks: Sequence[str]
    seed: int = 42
    largest: int = 99999
    shared: Sequence[str] = ()

    def run(self, repetitions: int) -> dict[str, Any]:
        """Run what is not finished, write the table and copy the best runs' test files.

        Args:
            repetitions: of all tasks; later more may be asked for.

        Returns:
            The content of summary.json.

        Raises:
            ValueError: a run was refused or failed.
            Interrupted: a training was interrupted.
        """
        asked = {
            **{"data": str(self.data), "model": self.model, "table": self.table},
            **{"tasks": list(self.tasks), "seed": self.seed, "largest": self.largest},
        }
        require_same(self.folder / RECORD, asked | {"shared": list(self.shared)})
        found: dict[str, list[Mapping[str, Any]]] = {task: [] for task in self.tasks}
        for repetition in range(repetitions):
            for task in self.tasks:
                found[task].append(self._run(task, repetition))
        summary = {task: self._scores(runs) for task, runs in found.items()}
        write_atomically(self.folder / SUMMARY, strict_json.dumps(summary).encode())
        write_atomically(self.folder / TABLE, markdown(summary).encode())
        for task, runs in found.items():
            self._keep_tests(task, summary[task]["best_run"], runs)
        return summary

    def place(self, task: str, repetition: int) -> Path:
        """Folder of a run, named as published: the task and the number of the repetition."""
        return self.folder / f"{task}{repetition}"

    def arguments(self, task: str, repetition: int) -> list[str]:
        """The command line of a run, without its output folder."""
        recipe = TABLES[self.table][task]
        model = self.model
        if task in FROM_MNLI and _MNLI in self.tasks:
            model = str(self.place(_MNLI, repetition) / OUTPUT / "last")
        options = {
            "task_name": task,
            "data_dir": self.data / task,
            "model_name_or_path": model,
            "learning_rate": recipe.learning_rate,
            "per_gpu_train_batch_size": min(recipe.batch_size, self.largest),
            "max_steps": recipe.max_steps,
            "warmup_steps": recipe.warmup_steps,
            "eval_steps": recipe.max_steps,  # the last weights are scored and predict, as published
            "seed": seed_of(repetition, self.seed),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [*COMMANDS["train_glue"], "--head", "plain", *words, *self.shared]

    def _run(self, task: str, repetition: int) -> Mapping[str, Any]:
        arguments = self.arguments(task, repetition)
        training = Training(self.tools / "train_glue.py", arguments, self.place(task, repetition))
        return run_unwatched(training, f"{task}, repetition {repetition}")

    def _scores(self, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Scores of the last step (no choice on the development set, as published)."""
        metric = runs[0]["metric"]
        values = [run["last"][metric] for run in runs]
        ranked = [-math.inf if value is None else value for value in values]
        known = [value for value in values if value is not None]
        return {
            "metric": metric,
            "values": values,
            "mean": statistics.fmean(known) if known else None,
            "std": statistics.stdev(known) if len(known) > 1 else None,
            "best_run": ranked.index(max(ranked)),
        }

    def _keep_tests(self, task: str, best: int, runs: Sequence[Mapping[str, Any]]) -> None:
        """Copy the test predictions of the best run, where test files were predicted."""
        for name in runs[best].get("predictions", {}).values():
            source = self.place(task, best) / OUTPUT / name
            write_atomically(self.folder / TESTS / name, read_bytes(source))


def markdown(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """One table of all tasks."""
    lines = [
        "| task | score | runs | mean | deviation | best | of run |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, row in summary.items():
        best = row["values"][row["best_run"]]
        cells = [_shown(value) for value in (row["mean"], row["std"], best)]
        count, whole = sum(value is not None for value in row["values"]), len(row["values"])
        count = whole if count == whole else f"{count} of {whole}"  # NaN is in no mean
        lines.append(
            f"| {task} | {row['metric']} | {count} | {' | '.join(cells)} | {row['best_run']} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
