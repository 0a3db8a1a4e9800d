"""Time the Paddle port and the PyTorch reference on the same work, in turns; print the ratios.

Suites: train, infer and head (steps, beside the bare matrix products of each step, the floor). No
time is judged. A row is marked where other programs used the processors or the turns differ too
much.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import CommandParser, command
from tools.benchmarks.reporting import SUITES, Settings, run_suites


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("--suite", nargs="+", choices=SUITES, default=tuple(SUITES), metavar="SUITE",
        help=f"{', '.join(SUITES)} (default: all)")  # fmt: skip
    add("--also", nargs="+", choices=("installed", "compiled", "bfloat16", "bf16"), default=(),
        metavar="SIDE", help="further columns: installed (the port without tuning and native "
        "operators), compiled (torch.compile), bfloat16 (torch's autocast), bf16 (the port with "
        "--cpu_precision bf16)")  # fmt: skip
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    add("--threads", type=int, default=cores, help="of every side (default: all)")
    add("--repeats", type=int, default=5, help="counted steps (default: 5)")
    add("--clock", choices=("wall", "processor"), default="wall",
        help="processor: its own time, for a busy machine with --threads 1")  # fmt: skip
    add("--json", metavar="FILE", help="write the results as JSON")
    add("--quick", action="store_true", help="toy sizes: shows that it runs, not a speed")
    options = parser.parse_args(arguments)
    if min(options.threads, options.repeats) < 1:
        parser.error("--threads and --repeats: expected numbers of at least 1")
    return options


@command("bench: error")
def main(arguments: list[str]) -> None:
    """Run the benchmark."""
    given = vars(_options(arguments))
    settings = Settings(**given, progress=_progress)
    print("\n".join(run_suites(settings)))


def _progress(row) -> None:
    print(json.dumps(row.to_json()), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
