"""Run checks against a mutant: in a fork that has the frameworks and imports the mutated file.

The file is put in by an import hook, so the tree is never written. A program that a test starts
in a process of its own runs the tree as it is: such a test sees no mutant.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import types
import warnings
from collections.abc import Sequence

import pytest

from tools.mutation.drawing import ROOT, Mutant

QUICK = "quick"
"""The check that is no pytest file: the quick alignment."""
LOADED = ("sot_torch_ref", "paddle", "paddlenlp.transformers", "timm", "scipy.stats")
"""The reference first: it declares the operators of torchvision that timm asks for."""
AFRESH = ("sot_paddle", "align", "tests")
"""Packages that a fork imports again, with the mutant in them."""
KILLED, CRASHED, TIMEOUT, SURVIVED, GONE = "killed", "crashed", "timeout", "survived", "gone"
"""How a mutant ends; `crashed`: it cannot be imported, or nothing could be collected."""
LIMIT = 900  # seconds for one check


def load_frameworks() -> None:
    """Import what no mutant changes, once, and leave it out of garbage collection."""
    warnings.simplefilter("ignore")
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def end_of(mutant: Mutant, checks: Sequence[str], limit: int = LIMIT) -> tuple[str, str]:
    """Return how a mutant ends, and the check that ended it ("" without).

    Args:
        mutant: drawn, or a frozen record.
        checks: pytest files or folders, or QUICK; run one after the other until one fails.
        limit: seconds for each of them.
    """
    text = mutant.text()
    if text is None:
        return GONE, ""
    for check in checks:
        end = forked_end(mutant, text, check, limit)
        if end != SURVIVED:
            return end, check
    return SURVIVED, ""


def forked_end(mutant: Mutant, text: str, check: str, limit: int) -> str:
    """Return how a check ends in a process of its own that imports a mutated file."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.setsid()
        _live(writer, mutant.file, text, check, limit)
    os.close(writer)
    try:
        with os.fdopen(reader, "r") as answer:
            end = answer.read()
        _, status = os.waitpid(process, 0)
    finally:  # with the programs that it started, also when this is interrupted
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    if end:
        return end
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    return TIMEOUT if late else CRASHED


def _live(writer: int, file: str, text: str, check: str, limit: int) -> None:
    """Live as the forked process: run one check, say how it ended, and exit."""
    end = CRASHED
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(limit)
        for name in [name for name in sys.modules if name.split(".")[0] in AFRESH]:
            del sys.modules[name]
        sys.meta_path.insert(0, MutatedFile(file, text))
        end = _run(check)
    finally:  # no exception gets back into the other process's code
        os.write(writer, end.encode())
        os._exit(0)


def _run(check: str) -> str:
    if check == QUICK:
        status = importlib.import_module("align.cli").main(["--quick", "--jobs", "0"])
        return {0: SURVIVED, 1: KILLED}.get(status, CRASHED)
    loaded = "ignore::pytest.PytestAssertRewriteWarning"  # a plugin is there before pytest starts
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", loaded, str(ROOT / check)])
    return {pytest.ExitCode.OK: SURVIVED, pytest.ExitCode.TESTS_FAILED: KILLED}.get(status, CRASHED)


class MutatedFile(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that gives one module another text.

    Args:
        file: of the module, its path from the root.
        text: what is run in its place.
    """

    def __init__(self, file: str, text: str) -> None:
        self.path, self.text = ROOT / file, text
        parts = file.removesuffix(".py").split("/")
        self.is_package = parts[-1] == "__init__"
        self.module = ".".join(parts[:-1] if self.is_package else parts)

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the specification of the mutated module, None for every other name."""
        if name != self.module:
            return None
        folders = [str(self.path.parent)] if self.is_package else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=folders
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave the making of the module to Python."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the mutated text as the module."""
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)  # noqa: S102
