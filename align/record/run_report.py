"""The report of a run, and where it comes from: pair, models, date, commits, command, seed, lines.

The line of a layer is that of its forward, or of the user's code that builds it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import sot_paddle
from align.record.recording import ROOT
from align.record.results import Divergence, StepResult
from sot_paddle.reading import dumps, json_ready

SIDES = {"paddle": "Paddle", "torch": "PyTorch"}
LIBRARIES = {"site-packages", "dist-packages"}


@dataclass
class Report:
    """Everything a run produced; an empty one is a failure, because nothing was proved.

    Attributes:
        environment: versions and machine.
        results: one for each case, step and dtype.
        findings: what differs, where and why; the one to fix first comes first.
        guilty: layers that are wrong on the reference's own inputs (inject mode).
        notes: what was not compared and why.
        about: the pair, date, command and commits, see `rows`.
    """

    environment: dict[str, Any]
    results: list[StepResult] = field(default_factory=list)
    findings: list[Divergence] = field(default_factory=list)
    guilty: list[Divergence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def repairs(self) -> list[Divergence]:
        """Every place to fix, once, in the order of repair: findings, and what inject mode adds."""
        repairs = [finding for finding in self.findings if not finding.follows]
        places = {finding.place for finding in repairs}
        alone = [finding for finding in self.guilty if not finding.follows]
        repairs += [finding for finding in alone if finding.place not in places]
        return sorted(repairs, key=lambda finding: finding.order)

    @property
    def consequences(self) -> list[Divergence]:
        """Findings that another one makes, and what inject mode adds to them."""
        consequences = [finding for finding in self.findings if finding.follows]
        places = {finding.place for finding in consequences}
        alone = [finding for finding in self.guilty if finding.follows]
        return consequences + [finding for finding in alone if finding.place not in places]

    @property
    def cases(self) -> dict[str, list[StepResult]]:
        """The results by case, in the order in which they were run."""
        cases: dict[str, list[StepResult]] = {}
        for result in self.results:
            cases.setdefault(result.case, []).append(result)
        return cases

    @property
    def verdict(self) -> str:
        """ "pass" when there is a result and all pass, else "fail"."""
        return "pass" if self.results and all(r.passed for r in self.results) else "fail"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail."""
        return 0 if self.verdict == "pass" else 1

    def to_json(self) -> dict[str, Any]:
        """The keys are those of docs/alignment.md, section "Output"."""
        return {
            "verdict": self.verdict,
            "about": json_ready(self.about),
            "environment": json_ready(self.environment),
            "findings": [finding.to_json() for finding in self.findings],
            "guilty": [finding.to_json() for finding in self.guilty],
            "notes": list(self.notes),
            "results": [r.to_json() for r in self.results],
        }

    def dumps(self) -> str:
        """`to_json` as text."""
        return dumps(self.to_json())


def origin() -> dict[str, Any]:
    """Date, command and commits of the run that is going on.

    Returns:
        ``date`` (ISO 8601, with the offset from UTC), ``command`` and ``commit``: "suite", and
        "yours" where the working folder lies in another repository.
    """
    suite = _commit_once(Path(__file__).resolve().parent)
    commits = {"suite": f"{sot_paddle.__version__} {suite}".strip()}
    yours = _commit_once(Path.cwd())
    if yours and yours != suite:
        commits["yours"] = yours
    return {
        "date": datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "commit": commits,
    }


def described(kind: str, code: str, entries: Iterable[Any]) -> dict[str, Any]:
    """One model of a pair.

    Args:
        entries: of its state dict; tensors with several names count once, buffers do not.

    Returns:
        ``class``, ``code`` and ``parameters`` (how many numbers).
    """
    sizes = {entry.identity: math.prod(entry.shape) for entry in entries if not entry.buffer}
    return {"class": kind, "code": code, "parameters": sum(sizes.values())}


def rows(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader sees of it: names and texts, in this order.

    Args:
        about: `origin`, and for a pair ``pair`` (its name), ``paddle`` and ``torch`` (from
            `described`) and ``seed``.
    """
    entries = [("pair", about["pair"])] if "pair" in about else []
    for side, title in SIDES.items():
        model = about.get(side)
        if model:
            text = f"{model['class']}, {model['parameters']:,} parameters, {model['code']}"
            entries.append((title, text))
    if "seed" in about:
        entries.append(("seed", str(about["seed"])))
    entries += [(key, about[key]) for key in ("date", "command") if key in about]
    commits = about.get("commit", {})
    return entries + [(f"commit ({whose})", text) for whose, text in commits.items() if text]


def commit(folder: Path) -> str:
    """Commit of the repository that holds a folder, "" when it is none or git is missing."""
    git = shutil.which("git")
    if git is None:
        return ""
    outputs = []
    for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        done = subprocess.run(  # noqa: S603 (two fixed commands that only read)
            [git, "--no-optional-locks", "-C", str(folder), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return ""
        outputs.append(done.stdout.strip())
    return outputs[0] + (" with uncommitted changes" if outputs[1] else "")


@functools.cache
def _commit_once(folder: Path) -> str:
    """A package that is installed inside somebody's repository is no part of it."""
    return "" if LIBRARIES & set(folder.parts) else commit(folder)


_BUILT = "_align_built_at"
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def code_of(layers: Mapping[str, Any], name: str) -> str:
    """Where to look for a layer: its forward; of a library's layer the user's line that builds it.

    Args:
        layers: every layer by name, the model itself under ROOT.

    Returns:
        Class, file and line, relative to the working folder where it can be; "" without the layer.
    """
    layer = layers.get(name)
    if layer is None:
        return ""
    source = source_of(layer)
    if not _is_library(_file(type(layer).forward)):
        return source
    (built,) = vars(layer).get(_BUILT, ("",))
    built = built or _built_at(layers, name)
    return f"{built} ({source})" if built else source


def source_of(layer: Any) -> str:
    """Class, file and line of a layer's forward."""
    kind = type(layer)
    return _place(kind.forward, f"{kind.__qualname__}.forward") or (
        f"{kind.__module__}.{kind.__qualname__}"
    )


def place_of(function: Any) -> str:
    """Name, file and line of what the user passed; the name alone when Python cannot tell.

    Args:
        function: a function, a `functools.partial`, a layer, or an object that can be called.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = getattr(type(function), "forward", type(function).__call__)
    return _place(function, function.__qualname__) or function.__qualname__


def builders_recorded(base: type) -> contextlib.AbstractContextManager[Any]:
    """Layers that are built in a ``with`` block remember the user's line that is building them."""
    plain = base.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **options: Any) -> None:
        vars(self)[_BUILT] = (_users_line(sys._getframe(1)),)  # no text: no setting of the layer
        plain(self, *args, **options)

    return mock.patch.object(base, "__init__", init)


def _users_line(frame: FrameType | None) -> str:
    """Function, file and line of the innermost frame that is no library's and not the suite's."""
    while frame is not None:
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        if not module.startswith("align.") and not _is_library(code.co_filename):
            title = (
                getattr(code, "co_qualname", code.co_name)
                .replace("<module>", "")
                .rpartition("<locals>.")[2]
            )
            return ", ".join(filter(None, [title, f"{shown(code.co_filename)}:{frame.f_lineno}"]))
        frame = frame.f_back
    return ""


def _built_at(layers: Mapping[str, Any], name: str) -> str:
    """Function, file and line of the constructor that names a layer which came built."""
    parts = name.split(".")
    for i in range(len(parts) - 1, -1, -1):
        owner = layers.get(".".join(parts[:i]) or ROOT)
        if owner is not None and not _is_library(_file(type(owner).__init__)):
            kind = type(owner)
            return _place(kind.__init__, f"{kind.__qualname__}.__init__", f"self.{parts[i]} ")
    return ""


def _is_library(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return file.startswith(("<frozen", *_INSTALLED)) or "site-packages" in Path(file).parts


def _file(function: Any) -> str:
    """Where a function is written, "" where that is not known."""
    try:
        return inspect.getsourcefile(inspect.unwrap(function)) or ""
    except TypeError:
        return ""


def shown(file: str) -> str:
    """A file of code as a reader sees it: relative to the working folder where it can be."""
    path = Path(file)
    if "site-packages" in path.parts:
        return Path(*path.parts[path.parts.index("site-packages") + 1 :]).as_posix()
    relative = os.path.relpath(path)
    return path.name if relative.startswith("..") else relative


def _place(function: Any, title: str, text: str = "") -> str:
    """Title, file and line of a function, or of the first line in it that holds a text."""
    file = _file(function)
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(function))
    except (OSError, TypeError):
        return ""
    offsets = (i for i, line in enumerate(lines) if text in line)
    return f"{title}, {shown(file)}:{first + next(offsets, 0)}" if file else ""
