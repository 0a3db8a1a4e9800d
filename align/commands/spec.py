"""`python -m align spec FILE`: a pair written down in a small Python file.

The file defines `torch_module()`, `paddle_layer()` and `inputs()`, and may define any other
argument of `align.compare`, in lower or upper case, as a value or a function without arguments.
"""

from __future__ import annotations

import argparse
import ast
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
from align.report.report import check_writable, write_asked
from sot_paddle.reading import read_bytes

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
        return self.source_to_code(read_bytes(Path(self.path)), self.path)


def read_spec(path: Path) -> Request:
    """Run a spec file and collect its definitions; it may import files beside it.

    Args:
        path: the file.

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
    try:
        loader.exec_module(module)
    except USER_ERRORS as error:
        raise ValueError(_told(path, error)) from error
    _refuse_misspelled(path)
    defined = {name: _get(module, name) for name in FIELDS}
    missing = [name for name in NEEDED if defined[name] is None]
    if missing:
        raise ValueError(
            f"spec {path}: {', '.join(missing)} missing; a spec defines {', '.join(NEEDED)} and "
            f"may define {', '.join(OPTIONS)}"
        )
    for name in BUILT:
        if not callable(defined[name]):
            raise ValueError(f"spec {path}: {name} is not a function")
    values = {
        name: value if name in BUILT else _value(path, value)
        for name, value in defined.items()
        if value is not None
    }
    if isinstance(values.get("weights"), (str, Path)) and values["weights"] != DRAFT:
        beside = path.parent / values["weights"]
        values["weights"] = beside if beside.exists() else Path(values["weights"])
    return Request(**{"name": path.stem, **values})


def _defined(tree: ast.Module) -> Iterator[str]:
    """The values and functions that a file defines itself."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            stored = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
            yield from (name.id for name in stored if isinstance(name.ctx, ast.Store))


def _refuse_misspelled(path: Path) -> None:
    """Refuse a name that nothing in the file reads: in capitals any, else one like an option's."""
    tree = ast.parse(read_bytes(path))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    option_names = {*FIELDS, *(name.upper() for name in FIELDS)}
    for name in _defined(tree):
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


def _value(path: Path, value: Any) -> Any:
    if not callable(value):
        return value
    try:
        return value()
    except USER_ERRORS as error:
        raise ValueError(_told(path, error)) from error


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
    try:
        from align.commands.comparing import compared

        result = compared(request)
    except USER_ERRORS as error:
        if isinstance(error, ValueError) and _place(path, error) == "":
            raise
        raise ValueError(_told(path, error)) from error
    print(result)
    write_asked(result.report, options.out, options.json, options.junit)
    return result.exit_code


def _get(module: Any, name: str) -> Any:
    return getattr(module, name, getattr(module, name.upper(), None))


def _told(path: Path, error: BaseException) -> str:
    """One line: the error and the line of the spec that raised it."""
    text = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        text = f"sys.exit({error.code!r}) before a verdict"
    detail = f": {text[:LONGEST]}" if text else ""
    return f"spec {path}{_place(path, error)}: {type(error).__name__}{detail}"


def _place(path: Path, error: BaseException) -> str:
    """Line of the spec, and of the user's file below it, in which an error arose."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    rows = traceback.extract_tb(error.__traceback__)
    spec_rows = [row for row in rows if row.filename == str(path)]
    place = f", line {spec_rows[-1].lineno}" if spec_rows else ""
    suite = Path(__file__).parents[1]
    outside = [row for row in rows if not {"paddle", "torch"} & {*Path(row.filename).parts}]
    is_model = bool(outside) and suite not in Path(outside[-1].filename).parents
    last = outside[-1] if is_model else rows[-1] if rows else None  # the framework's lines say less
    foreign = last is not None and suite not in Path(last.filename).parents
    if foreign and last.filename != str(path):
        place += f" ({shown(last.filename)}:{last.lineno})"
    return place
