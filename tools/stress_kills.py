"""Stop training runs at random moments, also inside a save, and see that none loses anything.

Text runs, image runs and pre-trainings of toy size get SIGKILL, SIGTERM and Ctrl-C; every run is
started again until it has ended, and its files are compared with those of a run left alone.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "sot_paddle" / "train")]

import sot_paddle  # noqa: E402, F401 (tunes the CPU before Paddle is loaded)

# isort: split
import kill_resume  # noqa: E402
import kill_resume_image  # noqa: E402
import kill_resume_pretraining  # noqa: E402
import kill_resume_processes  # noqa: E402
import killing  # noqa: E402

from sot_paddle.cli import CommandParser, command  # noqa: E402

RUNS = {
    "text": kill_resume.prepare,
    "image": kill_resume_image.prepare,
    "pretraining": kill_resume_pretraining.prepare,
}


@command("stress_kills: error")
def main(arguments: list[str]) -> int:
    """Run the command: 0 when every run ended as if it had been left alone, else 1."""
    parser = CommandParser(prog="stress_kills", description=__doc__)
    add = parser.add_argument
    add("--sigkill", type=int, default=10, metavar="N", help="of each kind of run [10]")
    add("--sigterm", type=int, default=5, metavar="N", help="of each kind of run [5]")
    add("--sigint", type=int, default=5, metavar="N", help="of each kind of run [5]")
    add("--seed", type=int, default=0, help="of the moments [0]")
    add("--only", choices=(*RUNS, "processes"), help="one kind of run, or two processes")
    options = parser.parse_args(arguments)
    signals = [signal.SIGKILL] * options.sigkill
    signals += [signal.SIGTERM] * options.sigterm + [signal.SIGINT] * options.sigint
    for name, prepare in RUNS.items():
        if options.only in (None, name) and killing.stop_runs(prepare, signals, options.seed):
            return 1
    if options.only in (None, "processes"):
        return kill_resume_processes.run(options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
