"""A sweep over seeds (``tools/sweep.py``): one configuration, or two that are compared in pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.cli import CommandParser
from sot_paddle.search import trainings

EVALUATIONS = ("best", "last")  # of a run
DIFFERENCE = "a - b"

DESCRIPTION = """\
Train with several seeds: mean and deviation of one configuration, and the paired difference of two
with its 95 % confidence interval. Each run has a folder of its own. The same command goes on with a
sweep that was stopped or killed; finished runs are not repeated, and more seeds may be asked
for."""
EXAMPLES = """\
A configuration is options as NAME=VALUE. What stands after -- goes to the training command in every
run.

example:
  python tools/sweep.py --command train_glue --a head=mgcrp --b head=plain learning_rate=3e-5 \\
      --seeds 1,2,3 --output_dir OUT/heads -- --task_name RTE --data_dir GLUE/RTE \\
      --model_name_or_path CHECKPOINT --do_lower_case
"""


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/sweep.py``."""
    parser = CommandParser(prog="sweep.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = parser.add_argument
    add("--command", required=True, choices=trainings.COMMANDS, help="training command")
    add("--a", required=True, nargs="+", metavar="NAME=VALUE", help="options of one")
    add("--b", nargs="+", metavar="NAME=VALUE", help="of a second one, to compare with")
    add("--seeds", required=True, metavar="LIST", help="such as 1,2,3,4,5")
    add("--output_dir", required=True, metavar="DIR", help="folder of this sweep")
    add("--metric", metavar="NAME", help="score to compare [the command's main one]")
    tool_words, shared = trainings.split_arguments(arguments)
    options = parser.parse_args(tool_words)
    command, folder = options.command, Path(options.output_dir)
    seeds = [int(part) for part in options.seeds.split(",")]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds must be different whole numbers, got {options.seeds!r}")
    words = {"a": [*shared, *(f"--set={word}" for word in options.a)]}
    if options.b is not None:
        words["b"] = [*shared, *(f"--set={word}" for word in options.b)]
    recorded = {
        name: trainings.all_options(command, each, {"seed": 0}) for name, each in words.items()
    }
    runs: dict[str, list[Mapping[str, Any]]] = {name: [] for name in words}
    with trainings.open_folder(folder, "sweep.json", {"command": command, **recorded}):
        for seed in seeds:
            for name, each in words.items():
                run_folder = folder / name / f"seed-{seed}"
                runs[name].append(trainings.train(command, each, run_folder, {"seed": seed}))
        metric = options.metric or runs["a"][0]["metric"]
        summary = {
            "configurations": {name: " ".join(each) for name, each in words.items()},
            "metric": metric,
            "seeds": seeds,
            **{which: _rows(runs, which, metric) for which in EVALUATIONS},
        }
        trainings.write_summary(folder, summary, markdown(summary))


def _rows(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], which: str, metric: str
) -> dict[str, dict[str, Any]]:
    """One row for each configuration, and one for the difference of two, seed by seed."""
    values: dict[str, list[float]] = {}
    for name, results in runs.items():
        scores = [result.get(which, {}) for result in results]
        if missing := [of_run for of_run in scores if metric not in of_run]:
            raise ValueError(f"{name}: no score {metric!r}; it has {', '.join(missing[0])}")
        values[name] = [math.nan if s[metric] is None else s[metric] for s in scores]
    if "b" in values:
        pairs = zip(values["a"], values["b"], strict=True)
        values[DIFFERENCE] = [first - second for first, second in pairs]
    return {name: seed_scores(of) for name, of in values.items()}


def seed_scores(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample deviation, Student's 95 % interval of the mean and p that it is 0, of seeds.

    Of paired differences p is that of the paired t-test. The values are taken for draws from a
    normal distribution; of a single seed, and where one is NaN, only the mean is known.
    """
    from scipy import stats  # takes a second, which --help need not

    mean = statistics.fmean(values)
    std = low = high = p_value = None
    if len(values) > 1 and not math.isnan(mean):
        std, low, high = statistics.stdev(values), mean, mean
    if std:
        freedom, error = len(values) - 1, std / math.sqrt(len(values))
        low, high = map(float, stats.t.interval(0.95, freedom, mean, error))
        p_value = 2.0 * float(stats.t.sf(abs(mean) / error, freedom))
    row = {"values": list(values), "mean": mean, "std": std}
    return row | {"low": low, "high": high, "p_value": p_value}


def markdown(summary: Mapping[str, Any]) -> str:
    """The summary as a page: a table for the best and one for the last evaluations."""
    text = f"# {summary['metric']} of {len(summary['seeds'])} seeds\n\n"
    text += "".join(f"- {name}: `{words}`\n" for name, words in summary["configurations"].items())
    for which in EVALUATIONS:
        rows = []
        for name, row in summary[which].items():
            interval = None if row["low"] is None else f"{row['low']:.4f} to {row['high']:.4f}"
            p_value = row["p_value"] if name == DIFFERENCE else None
            rows.append([name, *row["values"], row["mean"], row["std"], interval, p_value])
        names = [which, *summary["seeds"], "mean", "deviation", "95 %", "p"]
        text += "\n" + trainings.markdown_table(names, rows)
    return text
