"""Install pinned packages with pip and say every few seconds how far it is; standard library only.

python tools/install.py .venv/bin/python requirements.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sot_paddle.cli import CommandParser, command
from sot_paddle.reading import read_text

EVERY = 5.0
"""Seconds between two lines at most."""
_FETCHES = ("Collecting ", "Processing ", "Requirement ")


def pins(files: Iterable[str]) -> int:
    """How many packages the files pin."""
    return sum(len(re.findall(r"^[\w.-]+==", read_text(name), re.MULTILINE)) for name in files)


def installed(python: str) -> int:
    """How many packages an environment holds now."""
    return sum(1 for _ in Path(python).parent.parent.glob("lib/python*/site-packages/*.dist-info"))


def progress(said: Iterable[str], total: int, done: int, seconds: float) -> str:
    """One line: packages fetched or installed so far, and the time.

    Args:
        said: lines of pip.
        total: packages there are.
        done: packages that are installed.
        seconds: since the beginning.
    """
    fetched = [line.split() for line in said if line.startswith(_FETCHES)]
    latest = re.sub(r"-(cp|py)\d.*", "", Path(fetched[-1][1]).name) if fetched else "looking"
    what = f"{len(fetched):3d} of {total} fetched ({latest})"
    if done:
        what = f"{done:3d} of {total} installed"
    return f"setup: {what}, {int(seconds) // 60}:{int(seconds) % 60:02d}"


@command("setup: error")
def main(arguments: list[str]) -> None:
    """Install."""
    parser = CommandParser(prog="install", description=__doc__)
    parser.add_argument("words", nargs="+", help="Python of the environment, files of pins")
    python, *files = parser.parse_args(arguments).words
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    pip += ["--no-deps", "--no-compile"]  # a lock names all that is needed
    pip += [word for name in files for word in ("--requirement", name)]
    start, before, total, said = time.monotonic(), installed(python), pins(files), []
    with subprocess.Popen(  # noqa: S603 (the pip of the environment that is named)
        pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        reader = threading.Thread(target=lambda: said.extend(process.stdout))
        reader.start()
        while reader.is_alive():
            done = max(installed(python) - before, 0)
            print(progress(tuple(said), total, done, time.monotonic() - start), flush=True)
            reader.join(EVERY)
    if process.returncode:
        print("".join(said[-20:]), end="", file=sys.stderr)
        raise ValueError(f"pip ended with status {process.returncode}; its last lines stand above")


if __name__ == "__main__":
    sys.exit(main())
