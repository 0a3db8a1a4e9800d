"""Time `align.compare` on a full-size pair, and print the seconds by stage and the peak memory.

The pair is a spec file; without --spec it is BERT-base (12 layers x 768, 2 sentences of 32 tokens,
forward, loss, backward, 5 AdamW steps, float64 and float32, every control). No network is needed.
Exit status 0 when it measured, 1 when the pair does not align, 2 when it could not run.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)
from align.commands.spec import read_spec
from align.verdict_process import add_timeout, guarded
from sot_paddle.atomic import write_atomically
from sot_paddle.guard import CommandParser, command
from sot_paddle.strict_json import dumps

PAIR = ROOT / "docs" / "examples" / "bert_base_pair.py"
_GIB = 2**20 if sys.platform != "darwin" else 2**30  # unit of ru_maxrss: kB, on a Mac bytes


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(prog="bench_align", description=__doc__, status="")
    parser.add_argument("--spec", metavar="FILE", type=Path, default=PAIR, help="another pair")
    parser.add_argument(
        "--dtype", choices=("float64", "float32"), action="append", help="only this precision"
    )
    parser.add_argument("--json", metavar="FILE", help="write the numbers as JSON")
    add_timeout(parser)
    return parser.parse_args(arguments)


@command("bench_align: error")
def main(arguments: list[str]) -> int:
    """Run the comparison; returns the exit status."""
    options = _options(arguments)
    began = time.perf_counter()
    given = read_spec(options.spec)
    given = dataclasses.replace(given, dtype=tuple(options.dtype or ()) or given.dtype)
    from align.commands.comparing import compared

    imported = time.perf_counter()
    result = compared(given)
    ended = time.perf_counter()
    stages = [(f"{r.step} {r.dtype or ''}", r.seconds) for r in result.report.results]
    rest = ended - imported - sum(seconds for _, seconds in stages)
    rows = [("imports and spec", imported - began), *stages, ("weights, models, rest", rest)]
    used = resource.getrusage(resource.RUSAGE_SELF)
    rows += [("total", ended - began), ("processor time", used.ru_utime + used.ru_stime)]
    peak = used.ru_maxrss / _GIB
    for name, seconds in rows:
        print(f"{name:24} {seconds:8.1f} s")
    print(f"{'peak memory':24} {peak:8.2f} GiB")
    print(result.verdict)
    if options.json:
        found = {"seconds": dict(rows), "peak_gib": peak, "verdict": result.verdict}
        write_atomically(options.json, dumps(found).encode())
    return result.exit_code


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
