"""The command that fine-tunes on all of GLUE (``tools/glue_all.py``)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.command_line import OneLineParser
from sot_paddle.search import many_runs, run_record
from sot_paddle.search.glue_all import RECORD, GlueAll, markdown
from sot_paddle.search.glue_recipes import ORDER, SEEDS, TABLES

DESCRIPTION = """\
Fine-tune on every task of GLUE, ten times with the published seeds; RTE, STS-B and MRPC start from
the encoder that MNLI tuned. One table of all runs, and the test files of the best ones. The same
command goes on with what was stopped or killed; finished runs are not repeated."""
EXAMPLES = """\
What stands after -- goes to train_glue.py in every run.

examples:
  python tools/glue_all.py --data_dir glue_data --model_name_or_path output/pretrained/last \\
      --hyperparams electra_base --output_dir output/glue -- --do_predict
"""
_OWN = (
    *("task_name", "data_dir", "model_name_or_path", "learning_rate", "max_steps", "warmup_steps"),
    *("seed", "per_gpu_train_batch_size", "head", "config"),
)


def run_command(arguments: Sequence[str], tools: Path) -> int:
    """Run ``tools/glue_all.py``; see :func:`~.many_runs.run_command`."""
    return many_runs.run_command(parser(), _run, arguments, tools)


def _run(options: argparse.Namespace, training: Sequence[str], tools: Path) -> None:
    run_record.check_arguments(training, _OWN)
    tasks = options.tasks.split(",")
    unknown = [task for task in tasks if task not in ORDER]
    if unknown:
        raise ValueError(f"--tasks: unknown {unknown[0]!r}, expected some of {', '.join(ORDER)}")
    if not 1 <= options.repetitions <= len(SEEDS):
        raise ValueError(f"--repetitions must be from 1 to {len(SEEDS)}")
    if options.per_device_train_batch_size < 1:
        raise ValueError("--per_device_train_batch_size must be at least 1")
    folder = Path(options.output_dir)
    work = GlueAll(
        tools,
        folder,
        Path(options.data_dir),
        options.model_name_or_path,
        options.hyperparams,
        [task for task in ORDER if task in tasks],
        options.seed,
        options.per_device_train_batch_size,
        training,
    )
    with run_record.open_folder(folder, RECORD):
        print(markdown(work.run(options.repetitions)), end="")


def parser() -> OneLineParser:
    """Its options."""
    made = OneLineParser(
        "glue_all.py",
        DESCRIPTION,
        EXAMPLES,
        usage="glue_all.py --data_dir DIR --model_name_or_path DIR --output_dir DIR "
        "[--hyperparams TABLE] -- TRAINING OPTIONS",
    )
    add = made.add_argument
    add("--data_dir", required=True, metavar="DIR", help="with one folder for each task")
    add("--model_name_or_path", required=True, metavar="DIR", help="checkpoint to start from")
    add("--output_dir", required=True, metavar="DIR", help="folder of all runs")
    add("--hyperparams", default="electra_base", choices=tuple(TABLES), help="table [electra_base]")
    add("--repetitions", type=int, default=len(SEEDS), metavar="N", help="of all tasks [10]")
    add("--tasks", default=",".join(ORDER), metavar="LIST", help="with commas between [all]")
    add("--seed", type=int, default=SEEDS[0], metavar="N", help="moves the seeds, 42 does not [42]")
    add(
        "--per_device_train_batch_size",
        type=int,
        default=99999,
        metavar="N",
        help="batch at most; the steps stay, as published [99999]",
    )
    return made
