"""Which lines and branches of the product the processes of a run execute, by coverage.py."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from unittest import mock

from align.cases.covered.pause import STARTED_BY

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = ROOT / "sot_paddle"
_SETTINGS = """\
[run]
branch = true
parallel = true
source = {sources}
omit = */sot_paddle/convert/*
data_file = {folder}/executed
patch = _exit
disable_warnings = no-data-collected, module-not-imported, module-not-measured
[report]
exclude_lines =
    if TYPE_CHECKING:
    ^\\s*\\.\\.\\.$
partial_branches = a^
partial_branches_always = a^
"""
_BEGUN_BY = "executed"


@dataclass(frozen=True)
class FileRecord:
    """What ran of one file.

    Attributes:
        executed: first lines of statements that ran.
        missing: first lines of statements that did not.
        branches: (from, to) of jumps that were possible and never made; a negative line is the
            end of the function.
    """

    executed: frozenset[int]
    missing: frozenset[int]
    branches: frozenset[tuple[int, int]]


Record = Mapping[str, FileRecord]
"""File, relative to the product's folder, to what ran of it; every file of the product is there."""


@contextlib.contextmanager
def measured(*sources: Path) -> Iterator[Path]:
    """Let coverage.py start itself in every Python process that begins inside the block.

    Args:
        sources: folders whose lines count; the product's when none is given.

    Yields:
        A folder, removed afterwards, into which each process writes as it ends; for `read`.
    """
    resource_tracker.ensure_running()  # of multiprocessing; it would outlive the folder
    with tempfile.TemporaryDirectory(prefix="align_coverage_") as name:
        folder = Path(name)
        settings = folder / "settings.ini"
        named = "\n    ".join(map(str, sources or (PRODUCT,)))
        settings.write_text(_SETTINGS.format(sources=named, folder=folder), encoding="utf-8")
        with mock.patch.dict(os.environ, {STARTED_BY: str(settings)}):
            yield folder


@contextlib.contextmanager
def executed(*sources: Path) -> Iterator[dict[str, list[int]]]:
    """Note the lines that this process, and those it starts, run inside the block.

    Args:
        sources: as for `measured`; below the root of the tree.

    Yields:
        File, relative to that root, to its lines; filled when the block ends.
    """
    import coverage

    lines: dict[str, list[int]] = {}
    with measured(*sources) as folder:
        tracer = coverage.Coverage(config_file=str(folder / "settings.ini"))
        tracer.start()
        try:
            yield lines
        finally:
            tracer.stop()
            tracer.save()
        both = coverage.CoverageData(no_disk=True)
        for path in folder.glob(f"{_BEGUN_BY}.*"):
            part = coverage.CoverageData(str(path))
            part.read()
            both.update(part)
        for name in both.measured_files():
            file = Path(name).resolve().relative_to(ROOT).as_posix()
            lines[file] = sorted(both.lines(name) or ())


def read(folder: Path, product: Path = PRODUCT) -> Record:
    """What all processes together executed.

    Args:
        folder: from `measured`, whose processes have ended.
        product: as given to `measured`.

    Raises:
        ValueError: coverage.py is not installed where it can start itself.
    """
    if not list(folder.glob(f"{_BEGUN_BY}.*")):
        raise ValueError(
            "no process recorded what it executed: install the pinned coverage of "
            "requirements-tests.txt into this environment, or leave --coverage out"
        )
    import coverage

    combined = coverage.Coverage(config_file=str(folder / "settings.ini"))
    combined.combine([str(folder)])
    combined.json_report(outfile=str(folder / "report.json"))
    found = json.loads((folder / "report.json").read_text(encoding="utf-8"))["files"]
    return {
        Path(name).resolve().relative_to(product).as_posix(): FileRecord(
            frozenset(file["executed_lines"]),
            frozenset(file["missing_lines"]),
            frozenset((start, end) for start, end in file["missing_branches"]),
        )
        for name, file in sorted(found.items())
    }
