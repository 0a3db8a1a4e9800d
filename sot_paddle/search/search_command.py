"""The command that searches hyper-parameters (``tools/search.py``)."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.command_line import OneLineParser
from sot_paddle.search import many_runs, run_record
from sot_paddle.search.search_report import TABLE, write_best, write_plot, write_table
from sot_paddle.search.space import PRUNERS, read_space
from sot_paddle.search.study import RECORD, STORAGE, Search, complete, shown

DESCRIPTION = """\
Search hyper-parameters of a training command: draw options from a space, train with them, keep the
best. Each trial is a run of that command in a folder of its own. The same command goes on with a
search that was stopped or killed; finished trials are not repeated."""
EXAMPLES = """\
What stands after -- goes to the training command in every trial.

examples:
  python tools/search.py --space configs/search/SPACE.yaml --output_dir OUT/search -- \\
      --config configs/adapter/TASK.yaml --model_name_or_path CHECKPOINT --data_dir GLUE/MRPC
  python tools/search.py --space my_space.yaml --output_dir OUT/pruned --trials 30 \\
      --pruner median -- --config my_options.yaml --eval_steps 20
"""


def run_command(arguments: Sequence[str], tools: Path) -> int:
    """Run ``tools/search.py``; see :func:`~.many_runs.run_command`."""
    return many_runs.run_command(_parser(), _run, arguments, tools)


def _run(options: argparse.Namespace, training: Sequence[str], tools: Path) -> None:
    space = read_space(options.space)
    if options.pruner is not None:
        space = dataclasses.replace(space, pruner=options.pruner)
    trials = space.trials if options.trials is None else options.trials
    for name, value, lowest in (("trials", trials, 1), ("seed", options.seed, 0)):
        if value < lowest:
            raise ValueError(f"--{name} must be at least {lowest}, got {value}")
    run_record.check_arguments(training, tuple(space.parameters))
    folder = Path(options.output_dir)
    search = Search(space, folder, tools, training, options.seed, options.keep == "all")
    report = functools.partial(write_table, space=space, folder=folder)
    with run_record.open_folder(folder, RECORD):
        study = search.open()
        try:
            search.run(study, trials, report)
        finally:
            if (folder / STORAGE).is_file():  # not when the first trial was refused
                write_plot(study, space, folder)
        if not complete(study):
            raise ValueError(f"no trial has a score: {folder / TABLE} says why")
        write_best(study, space, folder)
        best = study.best_trial
        print(
            f"best of {len(study.trials)} trials: {space.metric} {best.value:.6g}, trial "
            f"{best.number}: {shown(best.params)}"
        )
        print(f"table, plot and best.yaml: {folder}")


def _parser() -> OneLineParser:
    parser = OneLineParser(
        "search.py",
        DESCRIPTION,
        EXAMPLES,
        usage="search.py --space FILE --output_dir DIR [options] -- TRAINING OPTIONS",
    )
    add = parser.add_argument
    add("--space", required=True, metavar="FILE", help="YAML file of a space (configs/search)")
    add("--output_dir", required=True, metavar="DIR", help="folder of this search")
    add("--trials", type=int, metavar="N", help="trials in all, later more [the space's]")
    add("--seed", type=int, default=0, metavar="N", help="of what is drawn [0]")
    add("--pruner", choices=PRUNERS, help="end trials that fall behind [the space's]")
    add("--keep", choices=("best", "all"), default="best", help="whose checkpoints stay [best]")
    return parser
