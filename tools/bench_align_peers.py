"""The sensitivity catalogue through this suite, reprod_log and PaDiff, in one run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from align.report.report import write_atomically
from sot_paddle.runtime import quiet_imports

_EPILOG = """\
PaDiff is optional; install it into a folder of its own:
  pip install --target FOLDER --no-deps padiff==0.2.0

exit status: 0 this suite sees every fault; 1 it misses one; 2 could not run

examples:
  python tools/bench_align_peers.py --padiff FOLDER --markdown peers.md
  python tools/bench_align_peers.py --faults 'layer_norm*' --seeds 2"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--padiff", metavar="FOLDER", help="where PaDiff is installed")
    made.add_argument("--faults", metavar="P", action="append", help="pattern; may be repeated")
    made.add_argument("--seeds", type=int, default=30, help="clean seeds (peers: at most 3)")
    made.add_argument("--jobs", type=int, default=2, help="worker processes at a time")
    made.add_argument("--json", metavar="FILE", help="everything, for machines")
    made.add_argument("--markdown", metavar="FILE", help="both tables")
    return made


def main() -> int:
    """Run the command."""
    options = parser().parse_args()
    quiet_imports()
    from align.certify.peers import benchmark
    from align.certify.peers.worker import tool_names

    try:
        installed = importlib.util.find_spec("padiff") is not None
        tools = tool_names(options.padiff, installed)
        found = benchmark.run(options.faults, options.seeds, options.jobs, options.padiff, tools)
    except (ValueError, OSError) as error:
        print(f"bench_align_peers: error: {error}", file=sys.stderr)
        return 2
    print(benchmark.table(found))
    if len(tools) == 1:
        print("PaDiff is not installed; --help says how to install it into a folder.")
    if options.markdown:
        text = f"{benchmark.table(found)}\n\n{benchmark.details(found)}\n"
        print("tables:", write_atomically(options.markdown, text.encode()))
    if options.json:
        text = json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n"
        print("JSON:", write_atomically(options.json, text.encode()))
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
