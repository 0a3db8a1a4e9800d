"""From a command line to its end: one run for each seed, and their summary."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sot_paddle import distributed
from sot_paddle.cli import exit_status
from sot_paddle.command_line import Command
from sot_paddle.distributed import say
from sot_paddle.train import run_folder
from sot_paddle.train.run import run_once
from sot_paddle.train.run_folder import RunFolder
from sot_paddle.train.setup import Setup

_OF_EVALUATION = ("evaluate_during_training", "eval_steps", "eval_all_checkpoints")


def finish(command: Command, run: Callable[[], object]) -> int:
    """Run a command to its end; see `exit_status` for what it returns, and says on stderr."""
    return distributed.leave(exit_status(command.program.removesuffix(".py"), run))


def run_setup(setup: Setup, folders: Sequence[RunFolder]) -> dict[str, Any]:
    """Run every seed of a setup; returns what its file of scores holds.

    Raises:
        ValueError: options or data that cannot be used.
        TrainingStopped: a run ended early.
    """
    options = setup.options
    for name in () if getattr(options, "do_eval", True) else _OF_EVALUATION:
        if getattr(options, name):
            say(f"--{name} has no effect without --do_eval")
    seeds = getattr(options, "seeds", None)
    if seeds is None:
        return run_once(setup, options.seed, folders[0])
    results = []
    for seed, folder in zip(seeds, folders, strict=True):
        say(f"seed {seed}")
        one_seed = dataclasses.replace(options, seed=seed, seeds=None)
        results.append(run_once(dataclasses.replace(setup, options=one_seed), seed, folder))
    content = summary(results)
    say(_summary_line(content))
    root = Path(options.output_dir)
    name = run_folder.scores_file(root, options)
    distributed.on_first_process(lambda: run_folder.write_json(root / name, content))
    return content


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, of the best and of the last evaluation.

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
