"""Write requirements.txt, which `make setup` installs: what pip chooses for pyproject.toml."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser, command

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = ROOT / "requirements.txt"
LEFT_OUT = {canonicalize_name(name) for name in PROJECT["tool"]["lock"]["left_out"]}
HEADER = """\
# Written by tools/lock.py from pyproject.toml, which names the packages that are left out. These
# are all that are needed: install them with --no-deps, as `make setup` does.
"""


def direct_requirements() -> list[str]:
    """Every requirement that pyproject.toml states, of the package itself and of its extras."""
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return [line for lines in lists for line in lines if not line.startswith(project["name"])]


def needed_packages(requires: Callable[[str], Iterable[str]]) -> set[str]:
    """Canonical names of what pyproject.toml requires and what that requires, without the left out.

    Args:
        requires: name of a package -> its requirements.
    """
    needed, waiting = set(), [(line, "") for line in direct_requirements()]
    while waiting:
        line, extra = waiting.pop()
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if applies and name not in LEFT_OUT and (name not in needed or requirement.extras):
            needed.add(name)
            extras = ("", *requirement.extras)
            waiting += [(further, option) for further in requires(name) for option in extras]
    return needed


@command("lock: error")
def main(arguments: list[str]) -> None:
    """Write the lock."""
    parser = CommandParser(prog="lock", description=__doc__)
    parser.add_argument("--newest", action="store_true", help="do not keep the lock's versions")
    keeps = [] if parser.parse_args(arguments).newest else ["--constraint", str(LOCK)]
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        pip += ["--report", report.name, *keeps, *direct_requirements()]
        subprocess.run(pip, check=True)  # noqa: S603 (this Python's pip)
        installs = [item["metadata"] for item in json.load(report)["install"]]
    packages = {canonicalize_name(metadata["name"]): metadata for metadata in installs}
    needed = needed_packages(lambda name: packages[name].get("requires_dist", ()))
    pins = [f"{name}=={packages[name]['version'].partition('+')[0]}" for name in sorted(needed)]
    write_atomically(LOCK, (HEADER + "\n".join(pins) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
