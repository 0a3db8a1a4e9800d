"""Run the quick suite's float32 results on imitated processors, each with other random weights.

18 settings of the variables by which PyTorch, oneDNN and MKL choose their kernels; every two values
of two variables meet. From row 18 on they repeat, with other weights. A row that is done is not run
again: the same command continues an interrupted run. Exit status 0 when no row failed, 1 when one
did, 2 when it could not run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)
from sot_paddle.cli import CommandParser, command
from tools.benchmarks import imitated_processors as stress


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(prog="stress_align", description=__doc__, status="")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("align_report/stress"))
    parser.add_argument("--processes", metavar="N", type=int, default=2, help="rows at a time")
    parser.add_argument("--rows", metavar="N", type=int, nargs="+", help="only these rows, 0 to 98")
    return parser.parse_args(arguments)


@command("stress_align: error")
def main(arguments: list[str]) -> int:
    """Run the rows; returns the exit status."""
    options = _options(arguments)
    chosen = options.rows or range(len(stress.rows()))
    if options.processes < 1 or not all(0 <= row < stress.ROWS for row in chosen):
        raise ValueError(
            f"--processes {options.processes}, rows {list(chosen)}: expected at least 1 process "
            f"and rows from 0 to {stress.ROWS - 1}"
        )
    found = stress.run(options.out, chosen, options.processes)
    print(stress.table(found))
    return int(any(row["failures"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
