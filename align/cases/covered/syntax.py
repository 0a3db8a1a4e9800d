"""What the lines of a source file are: in which function, of which block, or only a refusal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_ELSEWHERE = (ast.Return, ast.Yield, ast.YieldFrom, ast.Break, ast.Continue)


@dataclass(frozen=True)
class SourceFile:
    """One file.

    Attributes:
        text: its lines, the first at index 0.
        definitions: qualified name of a class or function to its lines.
        blocks: first line of a statement, or of an ``except``, to its lines: of a compound one its
            header and its first block, not its ``else``.
        refusals: lines whose only way out is an exception.
    """

    text: tuple[str, ...]
    definitions: dict[str, frozenset[int]]
    blocks: dict[int, frozenset[int]]
    refusals: frozenset[int]

    def line(self, number: int) -> str:
        """The text of a line, without its indentation."""
        return self.text[number - 1].strip()


def parse(text: str) -> SourceFile:
    """Look through the text of a Python file."""
    tree = ast.parse(text)
    statements = [n for n in ast.walk(tree) if isinstance(n, (ast.stmt, ast.ExceptHandler))]
    return SourceFile(
        tuple(text.splitlines()),
        dict(_definitions(tree)),
        {node.lineno: _first_block(node) for node in reversed(statements)},
        frozenset().union(*_refusals(tree)),
    )


def _definitions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, frozenset[int]]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _DEFINITIONS):
            yield outer + node.name, _lines(node, node)
            yield from _definitions(node, f"{outer}{node.name}.")
        else:
            yield from _definitions(node, outer)


def _lines(first: ast.stmt | ast.ExceptHandler, last: ast.stmt | ast.ExceptHandler):
    return frozenset(range(first.lineno, (last.end_lineno or last.lineno) + 1))


def _first_block(node: ast.stmt | ast.ExceptHandler) -> frozenset[int]:
    body = getattr(node, "body", None)
    return _lines(node, body[-1] if body else node)


def _refusals(tree: ast.AST) -> Iterator[frozenset[int]]:
    """Each ``raise``, and each block that ends in one and cannot be left in another way."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield _lines(node, node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list) or isinstance(node, (ast.Module, ast.ClassDef)):
                continue
            if block and isinstance(block[-1], ast.Raise) and not _leaves(block):
                handler = isinstance(node, ast.ExceptHandler)
                yield _lines(node if handler else block[0], block[-1])


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether a block can be left without an exception, before its last statement."""
    return any(isinstance(node, _ELSEWHERE) for part in block for node in ast.walk(part))
