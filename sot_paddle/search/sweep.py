"""A sweep over seeds (``tools/sweep.py``): one configuration, or two that are compared in pairs."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.command_line import OneLineParser
from sot_paddle.search import trainings

EVALUATIONS = ("best", "last")
"""What of a run is compared: its best evaluation and its last one."""
DIFFERENCE = "a - b"

DESCRIPTION = """\
Train with several seeds: mean and deviation of one configuration, and the paired difference of two
with its confidence interval. Each run has a folder of its own. The same command goes on with a
sweep that was stopped or killed; finished runs are not repeated, and more seeds may be asked
for."""
EXAMPLES = """\
A configuration is a YAML file of options, NAME=VALUE, or both. What stands after -- goes to the
training command in every run.

example:
  python tools/sweep.py --command train_glue --a head=mgcrp --b head=plain learning_rate=3e-5 \\
      --seeds 1,2,3 --output_dir OUT/heads -- --task_name RTE --data_dir GLUE/RTE \\
      --model_name_or_path CHECKPOINT --do_lower_case
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/sweep.py``; returns its exit status."""
    tool_words, training_words = trainings.split_arguments(arguments)
    return _parser().run(tool_words, lambda options: _run(options, training_words))


def _run(options: argparse.Namespace, shared: Sequence[str]) -> None:
    seeds, command, folder = _seeds(options.seeds), options.command, Path(options.output_dir)
    if not 0.0 < options.confidence < 1.0:
        raise ValueError(f"--confidence must be between 0 and 1, got {options.confidence}")
    words = {"a": _words("a", options.a)}
    if options.b is not None:
        words["b"] = _words("b", options.b)
    if "--config" in [*words["a"], *words.get("b", ())] and {"-c", "--config"} & {
        word.partition("=")[0] for word in shared
    }:
        raise ValueError("config is given twice: by a configuration and by the shared options")
    if words["a"] == words.get("b"):
        raise ValueError("--a and --b are the same: nothing to compare")
    recorded = {
        name: trainings.all_options(command, [*shared, *more], {"seed": 0})
        for name, more in words.items()
    }
    runs: dict[str, list[Mapping[str, Any]]] = {name: [] for name in words}
    with trainings.open_folder(folder, "sweep.json", {"command": command, **recorded}):
        for seed in seeds:
            for name, more in words.items():
                run_folder = folder / name / f"seed-{seed}"
                result = trainings.train(command, [*shared, *more], run_folder, {"seed": seed})
                runs[name].append(result)
        metric = options.metric or runs["a"][0]["metric"]
        summary = {
            "command": command,
            "configurations": {name: " ".join(more) for name, more in words.items()},
            "shared": " ".join(shared),
            "metric": metric,
            "seeds": seeds,
            "confidence": options.confidence,
            **{which: _rows(runs, which, metric, options.confidence) for which in EVALUATIONS},
        }
        trainings.write_summary(folder, summary, markdown(summary))


def _words(name: str, configuration: Sequence[str]) -> list[str]:
    """A configuration as words of the training's command line."""
    files = [word for word in configuration if "=" not in word]
    if len(files) > 1 or not all(Path(file).is_file() for file in files):
        raise ValueError(f"--{name} takes one file at most and NAME=VALUE, got {', '.join(files)}")
    assigned = [part for word in configuration if "=" in word for part in ("--set", word)]
    return [*(part for file in files for part in ("--config", file)), *assigned]


def _seeds(text: str) -> list[int]:
    numbers = [part for part in text.split(",") if part.isdecimal()]
    if len(set(map(int, numbers))) < len(text.split(",")):
        raise ValueError(f"--seeds must be different whole numbers with commas, got {text!r}")
    return [int(number) for number in numbers]


def _rows(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], which: str, metric: str, confidence: float
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
    return {name: seed_scores(of, confidence) for name, of in values.items()}


def seed_scores(values: Sequence[float], confidence: float) -> dict[str, Any]:
    """Mean, sample deviation, Student's interval of the mean and p that it is 0, of several seeds.

    Of paired differences p is that of the paired t-test. The values are taken for draws from a
    normal distribution; of a single seed, and where one is NaN, only the mean is known.
    """
    from scipy import stats  # takes a second, which --help need not

    mean = statistics.fmean(values)
    std = low = high = p_value = None
    if len(values) > 1 and not math.isnan(mean):
        std, low, high = statistics.stdev(values), mean, mean
        if std > 0.0:
            freedom, error = len(values) - 1, std / math.sqrt(len(values))
            low, high = map(float, stats.t.interval(confidence, freedom, mean, error))
            p_value = 2.0 * float(stats.t.sf(abs(mean) / error, freedom))
    row = {"values": list(values), "mean": mean, "std": std}
    return row | {"low": low, "high": high, "p_value": p_value}


def markdown(summary: Mapping[str, Any]) -> str:
    """The summary as a page: a table for the best and one for the last evaluations."""
    text = f"# {summary['metric']} of {len(summary['seeds'])} seeds\n\n"
    named = {**summary["configurations"], "both": summary["shared"]}
    text += "".join(f"- {name}: `{words}`\n" for name, words in named.items())
    for which in EVALUATIONS:
        percent = f"{100 * summary['confidence']:g} %"
        names = [which, *summary["seeds"], "mean", "deviation", percent, "p"]
        rows = []
        for name, row in summary[which].items():
            interval = None if row["low"] is None else f"{row['low']:.4f} to {row['high']:.4f}"
            p_value = row["p_value"] if name == DIFFERENCE else None
            rows.append([name, *row["values"], row["mean"], row["std"], interval, p_value])
        text += "\n" + trainings.markdown_table(names, rows)
    return text


def _parser() -> OneLineParser:
    parser = OneLineParser("sweep.py", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("--command", required=True, choices=trainings.COMMANDS, help="training command")
    add("--a", required=True, nargs="+", metavar="CONFIG", help="file and NAME=VALUE")
    add("--b", nargs="+", metavar="CONFIG", help="a second one, to compare with")
    add("--seeds", required=True, metavar="LIST", help="such as 1,2,3,4,5")
    add("--output_dir", required=True, metavar="DIR", help="folder of this sweep")
    add("--metric", metavar="NAME", help="score to compare [the command's main one]")
    add("--confidence", type=float, default=0.95, metavar="X", help="of the intervals [0.95]")
    return parser
