"""From a command line to its end: folders checked, one run for each seed, their summary."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle import distributed
from sot_paddle.cli import exit_status
from sot_paddle.command_line import Command, parse
from sot_paddle.distributed import say
from sot_paddle.train import run_folder
from sot_paddle.train.callbacks import StopRequest
from sot_paddle.train.run import run_once
from sot_paddle.train.setup import Run, Setup

_OF_EVALUATION = ("evaluate_during_training", "eval_steps", "eval_all_checkpoints")


def training(
    command: Command, run_config: Callable[[Any], dict[str, Any]]
) -> Callable[[Sequence[str]], int]:
    """How every training command runs.

    Args:
        command: its name, options and help.
        run_config: trains, from the command's options; returns what its file of scores holds.

    Returns:
        A function of the command line without the program's name. It returns 0 when all is done, 2
        when the command was refused or had to stop (NaN loss, no space), 130 when it was
        interrupted; then one line on stderr says why and what to do.
    """

    return lambda arguments: finish(command, lambda: run_config(parse(command, arguments)))


def finish(command: Command, run: Callable[[], dict[str, Any]]) -> int:
    """Run a training command to its end; returns its exit status, see `training`."""
    return distributed.leave(exit_status(command.program.removesuffix(".py"), run))


def check_folders(options: Any, files: Mapping[str, Path | None]) -> None:
    """Refuse a folder before the work of reading data and weights, and before the first seed.

    Args:
        options: of the run.
        files: what it reads, by flag.

    Raises:
        ValueError: see :func:`sot_paddle.train.run_folder.check`.
    """
    root, seeds = Path(options.output_dir), _seeds(options)
    folders = [root] if seeds is None else [root / f"seed-{seed}" for seed in seeds]

    def check() -> None:
        if seeds is not None:
            run_folder.check_summary(root, options)
        for folder in folders:
            run_folder.check(folder, options, files)

    distributed.on_first_process(check)


def run_setup(setup: Setup) -> dict[str, Any]:
    """Run every seed of a setup; returns what its file of scores holds.

    Raises:
        ValueError: options or data that cannot be used.
        TrainingStopped: a run ended early.
    """
    options = setup.options
    root, seeds = Path(options.output_dir), _seeds(options)
    for name in () if getattr(options, "do_eval", True) else _OF_EVALUATION:
        if getattr(options, name):
            say(f"--{name} has no effect without --do_eval")
    with StopRequest(immediately=distributed.world_size() > 1) as stop:
        if seeds is None:
            return run_once(Run(setup, options.seed, root, stop))
        with run_folder.open_summary(root, options):
            results = []
            for seed in seeds:
                say(f"seed {seed}")
                one = dataclasses.replace(options, seed=seed, seeds=None)
                run = Run(
                    dataclasses.replace(setup, options=one), seed, root / f"seed-{seed}", stop
                )
                results.append(run_once(run))
            content = summary(results)
            say(_summary_line(content))
            name = run_folder.scores_file(root, options)
            distributed.on_first_process(lambda: run_folder.write_entry(root, name, content))
    return content


def _seeds(options: Any) -> Sequence[int] | None:
    return getattr(options, "seeds", None)


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, of the best and of the last evaluation.

    Args:
        results: the metrics.json of each run.

    Returns:
        JSON-ready; ``std`` is the sample standard deviation, None for a single seed, or where a
        score is NaN.
    """
    metric = results[0]["metric"]
    content: dict[str, Any] = {
        "task": results[0]["task"],
        "metric": metric,
        "seeds": [result["seed"] for result in results],
    }
    for which in ("best", "last"):
        values = [result[which][metric] for result in results if which in result]
        several = len(values) > 1 and not any(map(math.isnan, values))
        if values:
            content[which] = {
                "values": values,
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if several else None,
            }
    return content | {"finished": True}


def _summary_line(content: dict[str, Any]) -> str:
    parts = []
    for which in ("best", "last"):
        if which in content:
            std = content[which]["std"]
            spread = "" if std is None else f" +- {std:.4f}"
            parts.append(f"{which} {content[which]['mean']:.4f}{spread}")
    return f"{content['task']} {content['metric']}, {len(content['seeds'])} seeds: " + (
        ", ".join(parts) or "not evaluated"
    )
