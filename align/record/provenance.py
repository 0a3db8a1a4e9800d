"""Where a report comes from: the pair, its models, date, commits, command and seed."""

from __future__ import annotations

import functools
import inspect
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sot_paddle

SIDES = {"paddle": "Paddle", "torch": "PyTorch"}
LIBRARIES = {"site-packages", "dist-packages"}


def origin(models: Iterable[Any] = ()) -> dict[str, Any]:
    """Date, command and commits of the run that is going on.

    Args:
        models: of the user; the repository that holds the code of the first one that is no
            library's is the user's.

    Returns:
        ``date`` (ISO 8601, with the offset from UTC), ``command`` and ``commit``: "suite", and
        "yours" where the user's code lies in another repository.
    """
    suite = Path(__file__).resolve().parent
    found = {"suite": f"{sot_paddle.__version__} {_commit_once(suite)}".strip()}
    yours = _commit_once(_folder(models))
    if yours and yours != _commit_once(suite):
        found["yours"] = yours
    return {
        "date": datetime.now(UTC).astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "commit": found,
    }


def described(kind: str, code: str, entries: Iterable[Any]) -> dict[str, Any]:
    """One model of a pair.

    Args:
        kind: its class.
        code: class, file and line of its forward.
        entries: of its state dict; tensors with several names count once, buffers do not.

    Returns:
        ``class``, ``code`` and ``parameters`` (how many numbers).
    """
    sizes: dict[int, int] = {}
    for entry in entries:
        if not entry.buffer:
            size = 1
            for length in entry.shape:
                size *= length
            sizes[entry.identity] = size
    return {"class": kind, "code": code, "parameters": sum(sizes.values())}


def rows(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader sees of it: names and texts, in this order.

    Args:
        about: `origin`, and for a pair ``pair`` (its name), ``paddle`` and ``torch`` (from
            `described`) and ``seed``.
    """
    found = [("pair", about["pair"])] if "pair" in about else []
    for side, title in SIDES.items():
        one = about.get(side)
        if one:
            text = f"{one['class']}, {one['parameters']:,} parameters, {one['code']}"
            found.append((title, text))
    if "seed" in about:
        found.append(("seed", str(about["seed"])))
    found += [(key, about[key]) for key in ("date", "command") if key in about]
    commits = about.get("commit", {})
    return found + [(f"commit ({whose})", text) for whose, text in commits.items() if text]


def commit(folder: Path) -> str:
    """Commit of the repository that holds a folder, "" when it is none or git is missing."""
    git = shutil.which("git")
    if git is None:
        return ""
    found = []
    for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        done = subprocess.run(  # noqa: S603 (two fixed commands that only read)
            [git, "--no-optional-locks", "-C", str(folder), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return ""
        found.append(done.stdout.strip())
    return found[0] + (" with uncommitted changes" if found[1] else "")


@functools.cache
def _commit_once(folder: Path) -> str:
    """A package that is installed inside somebody's repository is no part of it."""
    return "" if LIBRARIES & set(folder.parts) else commit(folder)


def _folder(models: Iterable[Any]) -> Path:
    """Folder of the user's code: of the first class that is no library's, else the working one."""
    for model in models:
        try:
            path = Path(inspect.getfile(type(model))).resolve()
        except (OSError, TypeError):  # built in, or typed into a prompt
            continue
        if not LIBRARIES & set(path.parts):
            return path.parent
    return Path.cwd()
