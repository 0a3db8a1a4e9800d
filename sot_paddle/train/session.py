"""The whole command: options, one run for each seed, the summary, one line for what went wrong."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sot_paddle import distributed
from sot_paddle.distributed import say
from sot_paddle.failures import exit_status
from sot_paddle.tasks.glue import load_glue
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import pretrained, run_folder
from sot_paddle.train.callbacks import StopRequest
from sot_paddle.train.command_line import parse
from sot_paddle.train.glue_run import run_once, set_up
from sot_paddle.train.pretrained import Converter
from sot_paddle.train.run import Run
from sot_paddle.train.run_folder import FolderUse


def run_command(arguments: Sequence[str], convert: Converter) -> int:
    """Run ``tools/train_glue.py``.

    Args:
        arguments: the command line without the program's name.
        convert: turns a Hugging Face checkpoint into this project's tensors.

    Returns:
        0 when all is done, 2 when the command was refused or had to stop (NaN loss, no space),
        130 when it was interrupted; in both cases one line on stderr says why and what to do.
    """
    status = exit_status("train_glue", lambda: run_config(parse(arguments), convert))
    return distributed.leave(status)


def run_config(config: TrainConfig, convert: Converter) -> dict[str, Any]:
    """Run every seed of a configuration; returns what the top metrics.json holds.

    Raises:
        ValueError: options or data that cannot be used.
        TrainingStopped: a run ended early.
    """
    set_up(config)
    root = Path(config.output_dir)
    _check_folders(config, root)
    source = pretrained.find(config, convert)
    task = load_glue(config, source.vocabulary)
    rows = pretrained.vocabulary_size(config, source)
    if task.vocab_size > rows:
        raise ValueError(
            f"the vocabulary has {task.vocab_size} entries, the model's embedding {rows}: they do "
            "not belong together"
        )
    with StopRequest(immediately=distributed.world_size() > 1) as stop:
        if config.seeds is None:
            return run_once(Run(config, config.seed, root, task, source, stop))
        with run_folder.open_summary(root, config):
            results = []
            for seed in config.seeds:
                say(f"seed {seed}")
                one = dataclasses.replace(config, seed=seed, seeds=None)
                results.append(run_once(Run(one, seed, _folder(root, seed), task, source, stop)))
            content = summary(results)
            say(_summary_line(content))
            distributed.on_first_process(
                lambda: run_folder.write_entry(root, run_folder.METRICS, content)
            )
    return content


def _check_folders(config: TrainConfig, root: Path) -> None:
    """Refuse a folder before the work of reading data and weights, and before the first seed."""
    folders = [root] if config.seeds is None else [_folder(root, seed) for seed in config.seeds]
    use = FolderUse(sources=pretrained.sources(config))

    def check() -> None:
        if config.seeds is not None:
            run_folder.check_summary(root, config)
        for folder in folders:
            run_folder.check(folder, config, use)

    distributed.on_first_process(check)


def _folder(root: Path, seed: int) -> Path:
    return root / f"seed-{seed}"


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, of the best and of the last evaluation.

    Args:
        results: the metrics.json of each run.

    Returns:
        JSON-ready; ``std`` is the sample standard deviation, None for a single seed.
    """
    metric = results[0]["metric"]
    content: dict[str, Any] = {
        "task": results[0]["task"],
        "metric": metric,
        "seeds": [result["seed"] for result in results],
    }
    for which in ("best", "last"):
        values = [result[which][metric] for result in results if which in result]
        if values:
            content[which] = {
                "values": values,
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if len(values) > 1 else None,
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
