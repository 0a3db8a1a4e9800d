"""Draw mutants of sot_paddle, or take the frozen ones, and see which of them the tests kill.

python tools/mutants.py draw --seed 7 --count 40 --checks tests/parity --checks tests/sot_paddle
python tools/mutants.py yardstick --files 'sot_paddle/heads/*' --json yardstick.json
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import json
import os
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser, command
from sot_paddle.reading import read_json
from tools.mutation.drawing import Mutant, draw, standing

FROZEN = [ROOT / "tests" / "yardstick" / name for name in ("mutants.json", "planted.json")]
CHECKS = ("tests/parity", "tests/sot_paddle", "quick")


@command("mutants: error")
def main(arguments: list[str]) -> int:
    """Run the command; 0 whatever survives: who reads the survivors decides."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("source", choices=("draw", "yardstick"), help="new mutants, or those of tests/yardstick")
    add("--seed", type=int, default=0, metavar="S", help="of the draw")
    add("--count", type=int, default=40, metavar="N", help="mutants to draw")
    add("--files", default="*", metavar="GLOB", help="only mutants of these files")
    add("--checks", action="append", metavar="PATH", help="for pytest, or quick; may be repeated")
    add("--part", default="1/1", metavar="K/N", help="every N-th mutant, from the K-th on")
    add("--json", metavar="FILE", help="write each mutant and its end there")
    options = parser.parse_args(arguments)
    if options.source == "draw":
        mutants = draw(options.seed, options.count)
    else:
        fields = [field.name for field in dataclasses.fields(Mutant)]
        records = [record for path in FROZEN for record in read_json(path, list)]
        frozen = [Mutant(**{name: record[name] for name in fields}) for record in records]
        mutants = [standing(mutant) for mutant in frozen]
    part, parts = map(int, options.part.split("/"))
    mutants = [one for one in mutants if fnmatch.fnmatch(one.file, options.files)]
    mutants = mutants[part - 1 :: parts]
    from tools.mutation.running import SURVIVED, end_of, load_frameworks

    load_frameworks()
    rows = []
    for number, mutant in enumerate(mutants, start=1):
        end, check = end_of(mutant, options.checks or CHECKS)
        rows.append({**dataclasses.asdict(mutant), "end": end, "check": check})
        print(f"[{number}/{len(mutants)}] {end:8s} {check:20s} {mutant.what}", flush=True)
    ends = Counter(row["end"] for row in rows)
    run = len(rows) - ends["gone"]
    print(
        f"{run - ends[SURVIVED]} of {run} noticed: "
        + ", ".join(f"{n} {e}" for e, n in ends.items())
    )
    if options.json:
        print("JSON:", write_atomically(options.json, json.dumps(rows, indent=1).encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
