"""The command that compares configurations on several tasks (``tools/evidence.py``)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.command_line import OneLineParser
from sot_paddle.search import run_record
from sot_paddle.search.evidence import RECORD, Evidence, markdown, read_plan

DESCRIPTION = """\
Compare configurations of a training on several tasks: the learning rate of each is chosen on seeds
apart, then every seed trains all of them, and the table gives paired differences with Student's
95 % intervals. The same command goes on with what was stopped or killed; finished runs are not
repeated, the table is of what is finished."""
EXAMPLES = """\
examples:
  python tools/evidence.py --data_dir GLUE --model_name_or_path CHECKPOINT --output_dir OUT/evidence
"""


def run_command(arguments: Sequence[str], tools: Path) -> int:
    """Run ``tools/evidence.py`` with the training commands of a folder; returns its exit status."""
    return _parser().run(arguments, lambda options: _run(options, tools))


def _run(options: argparse.Namespace, tools: Path) -> None:
    plan = read_plan(options.plan)
    tasks = plan.tasks if options.tasks is None else options.tasks.split(",")
    if unknown := [task for task in tasks if task not in plan.tasks]:
        raise ValueError(f"--tasks: {unknown[0]!r} is none of {', '.join(plan.tasks)}")
    count = len(plan.seeds) if options.seeds is None else options.seeds
    if not 0 <= count <= len(plan.seeds):
        raise ValueError(f"--seeds must be from 0 to {len(plan.seeds)}, got {count}")
    folder, data = Path(options.output_dir), Path(options.data_dir)
    if missing := [task for task in tasks if not (data / task).is_dir()]:
        raise ValueError(f"--data_dir: no folder {data / missing[0]}")
    work = Evidence(plan, tools, folder, data, options.model_name_or_path)
    with run_record.open_folder(folder, RECORD):
        print(markdown(work.run(tasks, count), len(plan.seeds)), end="")


def _parser() -> OneLineParser:
    parser = OneLineParser(
        "evidence.py",
        DESCRIPTION,
        EXAMPLES,
        usage="evidence.py --data_dir DIR --model_name_or_path DIR --output_dir DIR "
        "[--plan FILE] [--tasks LIST] [--seeds N]",
    )
    add = parser.add_argument
    add("--data_dir", required=True, metavar="DIR", help="with one folder for each task")
    add("--model_name_or_path", required=True, metavar="DIR", help="checkpoint to start from")
    add("--output_dir", required=True, metavar="DIR", help="folder of all runs")
    add("--plan", default="configs/evidence/glue_heads.yaml", metavar="FILE",
        help="what is compared [configs/evidence/glue_heads.yaml]")  # fmt: skip
    add("--tasks", metavar="LIST", help="some of the plan's, with commas between [all]")
    add("--seeds", type=int, metavar="N", help="the plan's first N; 0: only the table [all]")
    return parser
