"""Tools as a user starts them, in a process of their own, and as modules in this one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_BLOCKING = """
import importlib.machinery, runpy, sys
finder = importlib.machinery.PathFinder
found = finder.find_spec
blocked = {blocked!r}
finder.find_spec = staticmethod(
    lambda name, *rest: None if name.split(".")[0] in blocked else found(name, *rest)
)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def load(name: str) -> types.ModuleType:
    """A tool as a module of its name; dataclasses look it up there."""
    path = ROOT / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_tool", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(
    name: str, *arguments: object, without: tuple[str, ...] = (), python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a tool from the project root.

    Args:
        name: of the file in tools/.
        arguments: of the tool.
        without: packages that are not to be found.
        python: options of the interpreter.
    """
    start = [*python, *(("-c", _BLOCKING.format(blocked=without)) if without else ())]
    return subprocess.run(
        [sys.executable, *start, str(ROOT / "tools" / f"{name}.py"), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )


def refused_here(capsys: pytest.CaptureFixture[str], name: str, *arguments: object) -> str:
    """As `refused`, in this process."""
    try:
        status = load(name).main([*map(str, arguments)])
    except SystemExit as ended:
        status = ended.code
    out, said = capsys.readouterr()
    assert (status, out) == (2, ""), said
    return only_line(said)


def only_line(text: str) -> str:
    """The one line of a message."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def refused(name: str, *arguments: object, without: tuple[str, ...] = ()) -> str:
    """Run a tool into a refusal: status 2, nothing on stdout, one line on stderr, returned."""
    done = run(name, *arguments, without=without)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return only_line(done.stderr)
