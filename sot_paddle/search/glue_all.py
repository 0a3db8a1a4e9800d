"""All of GLUE (``tools/glue_all.py``): every task several times, one table, the best test files."""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.cli import CommandParser
from sot_paddle.search import trainings

DESCRIPTION = """\
Fine-tune on every task of GLUE, ten times with the published seeds; RTE, STS-B and MRPC start from
the encoder that MNLI tuned. One table of all runs, and the test files of the best ones. The same
command goes on with what was stopped or killed; finished runs are not repeated."""
EXAMPLES = """\
What stands after -- goes to train_glue.py in every run.

example:
  python tools/glue_all.py --data_dir glue_data --model_name_or_path output/pretrained/last \\
      --hyperparams electra_base --output_dir output/glue -- --do_predict
"""
SEEDS = (42, 97, 834, 622, 329, 75, 213, 101, 123, 57)
ORDER = ("MNLI", "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "QNLI", "RTE", "WNLI")
FROM_MNLI = ("RTE", "STS-B", "MRPC")
"""Tasks that start from the encoder that MNLI has tuned."""


_ELECTRA = {
    "MNLI": (128, 12121, 1212),
    "QQP": (128, 11200, 1120),
    "QNLI": (32, 9835, 983),
    "SST-2": (32, 6409, 640),
    "CoLA": (32, 851, 85),
    "STS-B": (32, 1836, 183),
    "MRPC": (32, 343, 34),
    "RTE": (32, 777, 77),
    "WNLI": (32, 100, 10),
}
_STABLE = {
    **{"MNLI": 24243, "CoLA": 567, "SST-2": 4273, "MRPC": 229, "STS-B": 367},
    **{"QQP": 22400, "QNLI": 6557, "RTE": 155, "WNLI": 100},
}

TABLES: Mapping[str, Mapping[str, tuple[float, int, int, int]]] = {
    "electra": {task: (1e-4 if task == "QNLI" else 3e-4, *row) for task, row in _ELECTRA.items()},
    "electra_base": {task: (1e-4, *row) for task, row in _ELECTRA.items()},
    "stable": {task: (2e-5, 16, 20 * steps, 2 * steps) for task, steps in _STABLE.items()},
}
"""``--hyperparams`` -> task -> (rate, batch, steps, warm-up steps), as published (specs.md E.4)."""


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/glue_all.py``."""
    tool_words, shared = trainings.split_arguments(arguments)
    options = parser().parse_args(tool_words)
    tasks = options.tasks.split(",")
    if unknown := set(tasks) - set(ORDER):
        raise ValueError(f"--tasks: unknown {min(unknown)!r}, expected some of {', '.join(ORDER)}")
    options.tasks = [task for task in ORDER if task in tasks]
    folder = Path(options.output_dir)
    recorded = {k: v for k, v in vars(options).items() if k not in ("repetitions", "output_dir")}
    runs: dict[str, list[Mapping[str, Any]]] = {task: [] for task in options.tasks}
    first = trainings.all_options("train_glue", shared, run_options(options, options.tasks[0], 0))
    with trainings.open_folder(folder, "glue_all.json", {**recorded, "options": first}):
        for repetition in range(options.repetitions):
            for task in options.tasks:
                run_folder = folder / f"{task}{repetition}"  # named as published
                of_run = run_options(options, task, repetition)
                runs[task].append(trainings.train("train_glue", shared, run_folder, of_run))
        summary = {task: _scores(results) for task, results in runs.items()}
        trainings.write_summary(folder, summary, markdown(summary))
        for task, row in summary.items():
            for name in runs[task][row["best_run"]].get("predictions", {}).values():
                best = folder / f"{task}{row['best_run']}" / name
                (folder / "test_files").mkdir(exist_ok=True)
                shutil.copyfile(best, folder / "test_files" / name)


def run_options(options: argparse.Namespace, task: str, repetition: int) -> dict[str, Any]:
    """The options that differ from run to run, without its folder."""
    rate, batch_size, max_steps, warmup_steps = TABLES[options.hyperparams][task]
    model = options.model_name_or_path
    if task in FROM_MNLI and "MNLI" in options.tasks:
        model = Path(options.output_dir) / f"MNLI{repetition}" / "last"
    return {
        "head": "plain",
        "task_name": task,
        "data_dir": Path(options.data_dir) / task,
        "model_name_or_path": model,
        "learning_rate": rate,
        # the steps stay where the batch is smaller, as published
        "per_gpu_train_batch_size": min(batch_size, options.per_device_train_batch_size),
        "max_steps": max_steps,
        "warmup_steps": warmup_steps,
        "eval_steps": max_steps,  # the last weights are scored and predict, as published
        "seed": SEEDS[repetition],
    }


def _scores(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores of the last step (no choice on the development set, as published); NaN is None."""
    metric = runs[0]["metric"]
    values = [run["last"][metric] for run in runs]
    numbers = [value for value in values if value is not None]
    ranked = [-math.inf if value is None else value for value in values]
    return {
        "metric": metric,
        "values": values,
        "mean": statistics.fmean(numbers) if numbers else None,
        "std": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "best_run": ranked.index(max(ranked)),
    }


def markdown(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """One table of all tasks; a score that is NaN is in no mean."""
    rows = []
    for task, row in summary.items():
        values, best = row["values"], row["best_run"]
        count = sum(value is not None for value in values)
        rows.append([task, row["metric"], count, row["mean"], row["std"], values[best], best])
    names = ["task", "score", "runs", "mean", "deviation", "best", "of run"]
    return trainings.markdown_table(names, rows)


def parser() -> CommandParser:
    """Its options."""
    parser = CommandParser(prog="glue_all.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("--data_dir", required=True, metavar="DIR", help="with one folder for each task")
    add("--model_name_or_path", required=True, metavar="DIR", help="checkpoint to start from")
    add("--output_dir", required=True, metavar="DIR", help="folder of all runs")
    add("--hyperparams", default="electra_base", choices=tuple(TABLES), help="table [electra_base]")
    counts = range(1, len(SEEDS) + 1)
    add("--repetitions", type=int, default=len(SEEDS), choices=counts, help="of all tasks [10]")
    add("--tasks", default=",".join(ORDER), metavar="LIST", help="with commas between [all]")
    help_of_batch = "batch at most; the steps stay, as published [99999]"
    add("--per_device_train_batch_size", type=int, default=99999, metavar="N", help=help_of_batch)
    return parser
