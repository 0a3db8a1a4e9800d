"""`python -m align spec FILE`: a pair written down in a small Python file.

The file defines `torch_module()`, `paddle_layer()` and `inputs()`, and may define any other
argument of `align.compare`, in lower or upper case, as a value or a function without arguments.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from align.match.name_table import DRAFT
from align.record.request import FIELDS, NEEDED, OPTIONS, Request, nearest
from align.record.run_report import shown
from align.report.report_html import check_writable, write_asked
from sot_paddle import reading

BUILT = NEEDED[:2]
"""The functions that a spec hands on: the comparison calls them itself."""
LONGEST = 500  # characters of a message: frameworks print whole stacks
USER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    SystemExit,
    TypeError,
    ValueError,
)
"""What a user's file or model may raise; it ends in one line, not in a traceback."""


class _FromText(SourceFileLoader):
    """Runs a file's text: bytecode of a second ago may be an older text's of the same length."""

    def get_code(self, fullname: str) -> CodeType:
        """The file, compiled; nothing is kept beside it."""
        return self.source_to_code(reading.read_bytes(Path(self.path)), self.path)


def read_spec(path: Path) -> Request:
    """Run a spec file and collect its definitions; it may import files beside it.

    Returns:
        Request: the two models as callables, everything else as values.

    Raises:
        ValueError: the file cannot be run, lacks a definition, has one that is misspelled, or asks
            for something that means nothing.
    """
    if not path.is_file():
        raise ValueError(f"spec {path}: no such file")
    if path.suffix != ".py":
        raise ValueError(f"spec {path}: expected a Python file (.py)")
    name = f"align_spec_{path.stem}"
    loader = _FromText(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if sys.path[0] != folder:
        sys.path.insert(0, folder)  # as Python does for a script
    with in_one_line(path):
        loader.exec_module(module)
    _refuse_misspelled(path)
    defined = {n: getattr(module, n, getattr(module, n.upper(), None)) for n in FIELDS}
    missing = [name for name in NEEDED if defined[name] is None]
    if missing:
        raise ValueError(
            f"spec {path}: {', '.join(missing)} missing; a spec defines {', '.join(NEEDED)} and "
            f"may define {', '.join(OPTIONS)}"
        )
    values: dict[str, Any] = {"name": path.stem}
    for name, value in defined.items():
        if name in BUILT and not callable(value):
            raise ValueError(f"spec {path}: {name} is not a function")
        if value is not None:
            with in_one_line(path):
                values[name] = value() if callable(value) and name not in BUILT else value
    if isinstance(values.get("weights"), (str, Path)) and values["weights"] != DRAFT:
        beside = path.parent / values["weights"]
        values["weights"] = beside if beside.exists() else Path(values["weights"])
    return Request(**values)


def _refuse_misspelled(path: Path) -> None:
    """Refuse a name that nothing in the file reads: in capitals any, else one like an option's."""
    tree = ast.parse(reading.read_bytes(path))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    option_names = {*FIELDS, *(name.upper() for name in FIELDS)}
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            stored = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            defined += [node.id for node in stored if isinstance(node.ctx, ast.Store)]
    for name in defined:
        is_own = name.startswith("_") or name in read or name in option_names
        meant = "" if is_own else nearest(name)
        if meant or (name.isupper() and not is_own):
            advice = "see docs/align_your_own.md for what there is."
            if meant:
                advice = f"did you mean {meant.upper() if name.isupper() else meant}?"
            raise ValueError(
                f"spec {path}: {name} is no option, and nothing in the file reads it: {advice} If "
                "it is your own, begin it with an underscore"
            )


def run_spec(options: argparse.Namespace) -> int:
    """Compare the pair of a spec, print the report, write the files; return the exit status.

    Raises:
        ValueError: a spec that cannot be run, in one line.
    """
    check_writable([options.out], [options.json, options.junit])
    path = Path(options.spec)
    request = read_spec(path)
    dtypes = request.dtype if options.dtype == "both" else (options.dtype,)
    inject = options.inject or request.inject
    request = dataclasses.replace(request, dtype=dtypes, inject=inject)
    with in_one_line(path):
        from align.commands.comparing import compared

        result = compared(request)
    print(result)
    write_asked(result.report, options.out, options.json, options.junit)
    return result.exit_code


@contextlib.contextmanager
def in_one_line(path: Path) -> Iterator[None]:
    """What a user's file or model raises, in one line with the line of the spec; refusals as is."""
    try:
        yield
    except USER_ERRORS as error:
        place = _place(path, error)
        if isinstance(error, ValueError) and not place:
            raise
        text = " ".join(str(error).split())
        if isinstance(error, SystemExit):
            text = f"sys.exit({error.code!r}) before a verdict"
        detail = f": {text[:LONGEST]}" if text else ""
        raise ValueError(f"spec {path}{place}: {type(error).__name__}{detail}") from error


def _place(path: Path, error: BaseException) -> str:
    """Line of the spec, and of the user's file below it, in which an error arose."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    rows = traceback.extract_tb(error.__traceback__)
    spec_rows = [row for row in rows if row.filename == str(path)]
    place = f", line {spec_rows[-1].lineno}" if spec_rows else ""
    outside = [row for row in rows if not {"paddle", "torch"} & {*Path(row.filename).parts}]
    is_model = bool(outside) and not _is_of_suite(outside[-1].filename)
    last = outside[-1] if is_model else rows[-1] if rows else None  # the framework's lines say less
    if last is not None and not _is_of_suite(last.filename) and last.filename != str(path):
        place += f" ({shown(last.filename)}:{last.lineno})"
    return place


def _is_of_suite(file: str) -> bool:
    """Whether a line of code is align's or sot_paddle's own: it says nothing to a user."""
    packages = Path(__file__).parents[1], Path(reading.__file__).parent
    return any(package in Path(file).parents for package in packages)
