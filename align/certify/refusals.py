"""Which functions of a package only refuse: they return nothing, change nothing and can raise."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def called(node: ast.AST) -> str:
    """The last name of what is called, "" for no call."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def only_refusing(trees: Iterable[ast.Module]) -> set[str]:
    """Names of functions that return nothing, change nothing and can only raise.

    A name counts when every function of that name is one; they may call each other.
    """
    functions: dict[str, list[ast.AST]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                functions.setdefault(node.name, []).append(node)
    found: set[str] = set()
    while True:
        more = {
            name
            for name, same in functions.items()
            if all(_only_refuses(function, found) for function in same)
        }
        if more == found:
            return found
        found = more


def _only_refuses(function: ast.AST, known: Collection[str]) -> bool:
    raises = False
    for node in ast.walk(function):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal | ast.Delete):
            return False
        if isinstance(node, ast.Return) and node.value is not None:
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if called(node.value) not in known:
                return False
            raises = True
        raises = raises or isinstance(node, ast.Raise)
    return raises


def refusing_lines(tree: ast.Module, refusers: Collection[str]) -> frozenset[int]:
    """Lines of the bodies of functions that only refuse, and of the statements that call one.

    Args:
        tree: of a file.
        refusers: their names, from `only_refusing`.
    """
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and _only_refuses(node, refusers):
            found.update(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.Expr) and called(node.value) in refusers:
            found.add(node.lineno)
    return frozenset(found)
