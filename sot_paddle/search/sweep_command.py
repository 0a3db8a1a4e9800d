"""The command that trains with several seeds and compares (``tools/sweep.py``)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.command_line import OneLineParser
from sot_paddle.search import many_runs, run_record
from sot_paddle.search.space import COMMANDS
from sot_paddle.search.sweep import RECORD, Sweep, markdown

DESCRIPTION = """\
Train with several seeds: mean and deviation of one configuration, and the paired difference of two
with its confidence interval. Each run has a process and a folder of its own. The same command goes
on with a sweep that was stopped or killed; finished runs are not repeated, and more seeds may be
asked for."""
EXAMPLES = """\
A configuration is a YAML file of options, NAME=VALUE, or both. What stands after -- goes to the
training command in every run.

examples:
  python tools/sweep.py --command train_glue --a first.yaml --b second.yaml \\
      --seeds 1,2,3,4,5 --output_dir OUT/sweep -- --data_dir GLUE/RTE
  python tools/sweep.py --command train_glue --a head=mgcrp --b head=plain learning_rate=3e-5 \\
      --seeds 1,2,3 --output_dir OUT/heads -- --task_name RTE --data_dir GLUE/RTE \\
      --model_name_or_path CHECKPOINT --do_lower_case
"""


def run_command(arguments: Sequence[str], tools: Path) -> int:
    """Run ``tools/sweep.py``; see :func:`~.many_runs.run_command`."""
    return many_runs.run_command(_parser(), _run, arguments, tools)


def _run(options: argparse.Namespace, training: Sequence[str], tools: Path) -> None:
    seeds = _seeds(options.seeds)
    if not 0.0 < options.confidence < 1.0:
        raise ValueError(f"--confidence must be between 0 and 1, got {options.confidence}")
    configurations = {
        name: _options(name, words)
        for name, words in (("a", options.a), ("b", options.b))
        if words is not None
    }
    files = any("--config" in words for words in configurations.values())
    run_record.check_arguments(training, ("seed", "config") if files else ("seed",))
    for words in configurations.values():
        run_record.check_arguments(words, ("seed",))
    if configurations.get("a") == configurations.get("b"):
        raise ValueError("--a and --b are the same: nothing to compare")
    folder = Path(options.output_dir)
    sweep = Sweep(
        options.command, tools, folder, training, configurations, options.metric, options.confidence
    )
    with run_record.open_folder(folder, RECORD):
        print(markdown(sweep.run(seeds)), end="")


def _options(name: str, words: Sequence[str]) -> list[str]:
    files = [word for word in words if "=" not in word]
    if len(files) > 1:
        raise ValueError(f"--{name} takes one file at most, got {', '.join(files)}")
    if files and not Path(files[0]).is_file():
        raise ValueError(f"--{name}: no file {files[0]} (options are NAME=VALUE)")
    assigned = [part for word in words if "=" in word for part in ("--set", word)]
    return [*(("--config", files[0]) if files else ()), *assigned]


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--seeds must be whole numbers with commas between, got {text!r}"
        ) from None
    if len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise ValueError(f"--seeds must differ and not be negative, got {text}")
    return seeds


def _parser() -> OneLineParser:
    parser = OneLineParser(
        "sweep.py",
        DESCRIPTION,
        EXAMPLES,
        usage="sweep.py --command NAME --a CONFIG [--b CONFIG] --seeds 1,2,3 --output_dir DIR "
        "-- TRAINING OPTIONS",
    )
    add = parser.add_argument
    add("--command", required=True, choices=tuple(COMMANDS), help="training command")
    add("--a", required=True, nargs="+", metavar="CONFIG", help="file and NAME=VALUE")
    add("--b", nargs="+", metavar="CONFIG", help="a second one, to compare with")
    add("--seeds", required=True, metavar="LIST", help="such as 1,2,3,4,5")
    add("--output_dir", required=True, metavar="DIR", help="folder of this sweep")
    add("--metric", metavar="NAME", help="score to compare [the command's main one]")
    add("--confidence", type=float, default=0.95, metavar="X", help="of the intervals [0.95]")
    return parser
