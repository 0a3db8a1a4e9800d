"""Draw right ports, wrong ones and planted float32 faults, and see what the suite says of each.

A failure is one line with the command that draws the same pair again. Exit status 0 when there was
none, 1 when there was one, 2 when the command could not run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "align")]

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)

# isort: split
from right_pairs import running

from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser, command
from sot_paddle.reading import dumps


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(prog="draw_pairs", description=__doc__, status="")
    add = parser.add_argument
    add("--right", metavar="N", type=int, default=0, help="right pairs: each has to pass")
    add("--wrong", metavar="N", type=int, default=0, help="the same with one wrong option")
    add("--power", metavar="N", type=int, default=0, help="faults that float32 has to show")
    add("--seed", metavar="S", type=int, default=0, help="of the first one of each kind [0]")
    add("--processes", metavar="K", type=int, default=1, help="at a time [1]")
    add("--setting", choices=running.SETTINGS, help="one for all; else each in turn")
    add("--most", metavar="X", type=float, default=1.0, help="factor of their size [1]")
    add("--out", metavar="FILE", type=Path, help="JSON of every pair")
    return parser.parse_args(arguments)


@command("draw_pairs: error")
def main(arguments: list[str]) -> int:
    """Draw and judge; returns the exit status."""
    options = _options(arguments)
    counts = {kind: getattr(options, kind) for kind in ("right", "wrong", "power")}
    wanted = running.tasks(counts, options.seed, options.setting, options.most)
    if not wanted or min(counts.values()) < 0 or options.processes < 1 or not options.most > 0:
        raise ValueError(f"nothing to draw: {counts}, --processes {options.processes}")
    records = []
    for record in running.run(wanted, options.processes):
        records.append(record)
        if running.is_failure(record):
            print(running.line(record), flush=True)
        if options.out:
            write_atomically(options.out, dumps(records).encode())
    print(running.summary(records))
    return int(any(map(running.is_failure, records)))


if __name__ == "__main__":
    sys.exit(main())
