"""`python -m align --spec FILE`: a pair written down in a small Python file.

The file defines `torch_module()`, `paddle_layer()` and `inputs()`, and may define any other
argument of `align.compare`, in lower or upper case, as a value or a function without arguments.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align.report.report import write_json, write_junit

NEEDED = ("torch_module", "paddle_layer", "inputs")
OPTIONS = (
    "loss",
    "labels",
    "optimizer",
    "weights",
    "steps",
    "dtype",
    "seed",
    "train",
    "shake",
    "inject",
    "name",
    "data",
    "metric",
    "schedule",
    "schedule_steps",
    "converted",
    "dropout",
    "travel",
)
LONGEST = 500  # characters of a message: frameworks print whole stacks
USER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    SystemExit,
    TypeError,
    ValueError,
)
"""What a user's file or model may raise; it ends in one line, not in a traceback."""


def read_spec(path: Path) -> dict[str, Any]:
    """Run a spec file and collect its definitions.

    Args:
        path: the file.

    Returns:
        Arguments of `align.compare`: the two models as callables, everything else as values.

    Raises:
        ValueError: the file cannot be run, or lacks a definition.
    """
    if not path.is_file():
        raise ValueError(f"--spec {path}: no such file")
    loaded = importlib.util.spec_from_file_location(f"align_spec_{path.stem}", path)
    if loaded is None or loaded.loader is None:
        raise ValueError(f"--spec {path}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(loaded)
    sys.modules[loaded.name] = module
    try:
        loaded.loader.exec_module(module)
    except USER_ERRORS as error:
        raise ValueError(_told(path, error)) from error
    given = {name: _get(module, name) for name in (*NEEDED, *OPTIONS)}
    missing = [name for name in NEEDED if given[name] is None]
    if missing:
        raise ValueError(
            f"--spec {path}: {', '.join(missing)} missing; a spec defines {', '.join(NEEDED)} and "
            f"may define {', '.join(OPTIONS)}"
        )
    for name in ("torch_module", "paddle_layer"):
        if not callable(given[name]):
            raise ValueError(f"--spec {path}: {name} is not a function")
    found = {}
    for name, value in given.items():
        if value is not None:
            found[name] = value if name in NEEDED[:2] else _value(path, value)
    found.setdefault("name", path.stem)
    weights = found.get("weights")
    if isinstance(weights, (str, Path)):
        found["weights"] = path.parent / weights  # a table beside the spec
    return found


def _value(path: Path, value: Any) -> Any:
    if not callable(value):
        return value
    try:
        return value()
    except USER_ERRORS as error:
        raise ValueError(_told(path, error)) from error


@dataclass(frozen=True)
class Files:
    """What a run writes beside the console text; None for not at all.

    Attributes:
        out: folder for report.html and report.json.
        json: file for the JSON alone.
        junit: file for the JUnit XML.
    """

    out: str | None = None
    json: str | None = None
    junit: str | None = None


def run_spec(
    path: Path,
    dtype: Sequence[str],
    inject: bool,
    files: Files,
    processes: int = 0,
    certificate: Mapping[str, Any] | None = None,
) -> int:
    """Compare the pair of a spec, print the report, write the files; returns the exit status.

    Args:
        path: the spec.
        dtype: precisions asked for on the command line, empty for those of the spec.
        inject: feed each layer the reference's inputs as well.
        files: what to write.
        processes: train in so many processes as well and compare with one, 0 for not.
        certificate: summary that the report shows.

    Raises:
        ValueError: a spec that cannot be run, in one line.
    """
    given = read_spec(path)
    if dtype:
        given["dtype"] = tuple(dtype)
    given["inject"] = inject or given.get("inject", False)
    try:
        from align.commands.comparing import compare

        result = compare(**given)
        if processes:
            _distributed(result, path, given, processes)
    except USER_ERRORS as error:
        if isinstance(error, ValueError) and _place(path, error) == "":
            raise
        raise ValueError(_told(path, error)) from error
    result.report.certificate = None if certificate is None else dict(certificate)
    print(result)
    if files.out:
        result.write(files.out)
    if files.json:
        print("JSON:", write_json(result.report, files.json))
    if files.junit:
        print("JUnit XML:", write_junit(result.report, files.junit))
    if files.out:
        print("HTML report:", Path(files.out) / "report.html")
    return result.exit_code


def _distributed(result: Any, path: Path, given: Mapping[str, Any], processes: int) -> None:
    """N processes against one, as one more result of the outcome."""
    from align.stages.distributed import distributed

    if processes < 2:
        raise ValueError(f"--processes {processes}: expected at least 2")
    began = time.perf_counter()
    found, divergences = distributed(path, dict(given), processes)
    found.seconds = time.perf_counter() - began
    result.report.results.append(found)
    result.add(divergences)


def _get(module: Any, name: str) -> Any:
    return getattr(module, name, getattr(module, name.upper(), None))


def _told(path: Path, error: BaseException) -> str:
    """One line: the error and the line of the spec that raised it."""
    text = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        text = f"sys.exit({error.code!r}) before a verdict"
    return f"--spec {path}{_place(path, error)}: {type(error).__name__}: {text[:LONGEST]}"


def _place(path: Path, error: BaseException) -> str:
    """Line of the spec, and of the user's file below it, in which an error arose."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    rows = traceback.extract_tb(error.__traceback__)
    own = [row for row in rows if row.filename == str(path)]
    place = f", line {own[-1].lineno}" if own else ""
    suite = Path(__file__).parents[1]
    last = rows[-1] if rows else None
    foreign = last is not None and suite not in Path(last.filename).parents
    if foreign and last.filename != str(path):
        place += f" ({Path(last.filename).name}:{last.lineno})"
    return place
