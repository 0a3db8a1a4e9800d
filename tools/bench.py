"""Time the Paddle port and the PyTorch reference on the same work in one run; print the ratios.

Exit status 0 when it measured, 2 when it could not run. No time is good or bad here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from align.cases import speed
from align.report.report import write_atomically


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text}")
    return number


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument(
        "--threads", type=_positive, default=cores, help="of both frameworks (default: all)"
    )
    parser.add_argument(
        "--repeats", type=_positive, default=7, help="counted steps of each side (default: 7)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that the tool runs, not a speed"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = _options(arguments)
    workloads = speed.TINY_WORKLOADS if options.quick else speed.WORKLOADS
    try:
        if options.json and Path(options.json).is_dir():
            raise ValueError(f"cannot write to {options.json}: it is a folder")
        rows, stamps = speed.measure(
            workloads,
            options.threads,
            options.repeats,
            lambda row: print(json.dumps(row.to_json()), file=sys.stderr, flush=True),
        )
        found = {"environment": stamps, "threads": options.threads, "repeats": options.repeats}
        found["results"] = [row.to_json() for row in rows]
        if options.json:
            write_atomically(options.json, (json.dumps(found, indent=1) + "\n").encode())
    except (ValueError, OSError) as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 2
    for side, stamp in stamps.items():
        print(f"{side}: {json.dumps(stamp)}")
    print(f"{options.threads} threads each, medians of {options.repeats} turns; below 1: faster")
    print(speed.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
