"""Time `align.compare` on a full-size pair, and print the seconds by stage and the peak memory.

The pair is a spec file; without --spec it is BERT-base (12 layers x 768, 2 sentences of 32 tokens,
forward, loss, backward, 5 AdamW steps, float64 and float32, every control). No network is needed.
Exit status 0 when it measured, 1 when the pair does not align, 2 when it could not run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)
from align.verdict_process import add_timeout, guarded
from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser, command
from sot_paddle.strict_json import dumps
from tools.benchmarks.alignment_timing import timed_alignment

PAIR = ROOT / "docs" / "examples" / "bert_base_pair.py"


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
    found = timed_alignment(options.spec, options.dtype or ())
    print("\n".join(found.lines()))
    if options.json:
        write_atomically(options.json, dumps(found.to_json()).encode())
    return found.exit_code


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
