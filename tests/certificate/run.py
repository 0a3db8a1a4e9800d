"""Plant the whole catalogue and print the certificate: `make certificate`.

python -m tests.certificate.run --faults 'layer_norm*' --seeds 2
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser, command
from sot_paddle.reading import dumps
from sot_paddle.runtime import ignore_import_warnings
from tests.certificate import certificate_table, faults
from tests.certificate.certificate import SEEDS, CleanRun, FaultRow

ROOT = Path(__file__).resolve().parents[2]
CODE = ("align", "docs/examples", "sot_paddle", "sot_torch_ref", "tests/certificate")
"""What a result depends on."""


@command("certificate: error")
def main(arguments: list[str]) -> int:
    """Run the command; 0 when what was run meets every threshold, 1 below one."""
    parser = CommandParser(
        prog="python -m tests.certificate.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--faults", action="append", metavar="F", help="name, pattern or area; may be repeated")
    add("--seeds", type=int, default=SEEDS, metavar="N", help=f"clean seeds (default {SEEDS})")
    add("--jobs", type=int, default=2, metavar="N", help="worker processes (default 2)")
    add("--json", metavar="FILE", help="write every row there")
    add("--list", action="store_true", help="list the faults and stop")
    options = parser.parse_args(arguments)
    if options.list:
        for fault in faults.select(options.faults):
            part = "held-out" if fault.held_out else "development"
            print(f"{fault.name:48s} {fault.area:11s} {fault.scene:18s} {fault.step:14s} {part}")
        return 0
    ignore_import_warnings()
    from tests.certificate.running import KeptResults, certify  # loads both frameworks

    kept = KeptResults(Path(tempfile.gettempdir()) / f"certificate_{fingerprint()}.jsonl")
    if kept.path.is_file():
        print(f"going on from {kept.path}", file=sys.stderr)
    certificate = certify(options.seeds, options.jobs, options.faults, show, kept)
    print(certificate_table.console(certificate))
    if options.json:
        print("JSON:", write_atomically(options.json, dumps(certificate.to_json()).encode()))
    kept.path.unlink(missing_ok=True)
    return certificate.exit_code


def fingerprint() -> str:
    """Return a hash of the code that a result depends on, and of the interpreter."""
    content = hashlib.sha256(sys.version.encode())
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                content.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return content.hexdigest()[:20]


def show(done: int, total: int, result: FaultRow | CleanRun) -> None:
    """Print a line for each fault, some of the clean runs, and those that are not clean."""
    if isinstance(result, FaultRow):
        line = f"{result.fault}: {', '.join(certificate_table.marks(result))}"
    elif result.passed and done % 50 and done < total:
        return
    else:
        line = f"{'clean' if result.passed else 'ALARM'} {result.scene}, seed {result.seed}"
    print(f"[{done}/{total}] {line} {result.seconds:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
