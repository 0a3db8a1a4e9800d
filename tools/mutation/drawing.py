"""Mutants drawn from a seed: a statement of the product, then one of its edits.

Not edited, because no number follows from it: text (messages, docstrings, arguments of exceptions
and logs), annotations, imports, assertions, and blocks that end in ``raise``.
"""

from __future__ import annotations

import ast
import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.edits import EXPRESSIONS, STATEMENTS, UNSEEN_OPTIONS
from tools.mutation.value_edits import FileNames, called, number, written

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = "sot_paddle"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NEVER = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.Global, ast.Pass)
_SAYING = {"warn", "warning", "filterwarnings", "info", "debug", "error", "print", "say", "_say"}
_TEXTS = {"__repr__", "__str__", "extra_repr"}
_SHOWN = 100  # characters of an expression in a listing


@dataclass(frozen=True)
class Mutant:
    """One edit of one file, as lines, so that it can be found again where they have moved.

    Attributes:
        file: its path from the root.
        definition: dotted name of the class or function around the edit, "" for the module.
        what: the edit in one line.
        before, after: the whole lines that the edit changes.
    """

    file: str
    definition: str
    what: str
    before: str
    after: str

    def text(self) -> str | None:
        """Return the file's text with the edit, None where its lines are gone."""
        path = ROOT / self.file
        content = path.read_text(encoding="utf-8") if path.is_file() else ""
        span = definition_span(content, self.definition) if self.before in content else None
        if span is None:
            return None
        at = content.find(self.before, span.start, span.stop)
        if at < 0:
            return None
        return content[:at] + self.after + content[at + len(self.before) :]


def standing(mutant: Mutant) -> Mutant:
    """Return a mutant in the one file that holds its lines, itself where none or several do."""
    if mutant.text() is not None:
        return mutant
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / PRODUCT).rglob("*.py"))
    moved = [dataclasses.replace(mutant, file=file) for file in files]
    standing_ones = [elsewhere for elsewhere in moved if elsewhere.text() is not None]
    return standing_ones[0] if len(standing_ones) == 1 else mutant


def definition_span(content: str, name: str) -> range | None:
    """Return the characters of a class or function of a file, None where there is none."""
    if not name:
        return range(len(content)) if content else None
    node: ast.AST = ast.parse(content)
    for part in name.split("."):
        inner = (n for n in ast.walk(node) if isinstance(n, _DEFINITIONS) and n.name == part)
        node = next(inner, None)
        if node is None:
            return None
    lines = content.splitlines(keepends=True)
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
    start = sum(map(len, lines[:first]))
    return range(start, start + sum(map(len, lines[first : node.end_lineno])))


def draw(seed: int, count: int) -> list[Mutant]:
    """Return mutants of the product: statements without repetition, one edit of each.

    Args:
        seed: of the draw.
        count: how many.

    Raises:
        ValueError: there are not so many statements.
    """
    chance = random.Random(seed)
    sites = []
    for path in sorted((ROOT / PRODUCT).rglob("*.py")):
        file = SourceText(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        sites += [(file, definition, node) for definition, node in file.statements()]
    chance.shuffle(sites)
    mutants: list[Mutant] = []
    for file, definition, node in sites:
        edits = file.edits(definition, node)
        if edits and len(mutants) < count:
            kind = chance.choice(sorted(edits))
            mutants.append(chance.choice(edits[kind]))
    if len(mutants) < count:
        raise ValueError(f"{count} mutants asked for, {len(mutants)} can be made")
    return mutants


class SourceText:
    """A file whose statements can be edited."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self._tree = ast.parse(text)
        self._names = _names(self._tree)

    def statements(self) -> Iterator[tuple[str, ast.stmt]]:
        """Yield every statement that computes, with the dotted name of what is around it."""
        yield from self._below(self._tree, "")

    def _below(self, node: ast.AST, definition: str) -> Iterator[tuple[str, ast.stmt]]:
        for child in ast.iter_child_nodes(node):
            inner = definition
            if isinstance(child, _DEFINITIONS):
                if child.name in _TEXTS:
                    continue
                inner = f"{definition}.{child.name}".lstrip(".")
            if isinstance(child, ast.stmt) and _computes(child):
                yield inner, child
            if not (isinstance(child, ast.If) and _refuses(child)):
                yield from self._below(child, inner)

    def edits(self, definition: str, node: ast.stmt) -> dict[str, list[Mutant]]:
        """Return the edits of a statement by kind."""
        mutants: dict[str, list[Mutant]] = {}
        for kind, of_statement in STATEMENTS.items():
            for old, new in of_statement(node):
                mutants.setdefault(kind, []).append(self._mutant(definition, kind, old, new))
        for part in _parts(node):
            for kind, edit in EXPRESSIONS.items():
                for new in edit(part, self._names):
                    mutants.setdefault(kind, []).append(self._mutant(definition, kind, part, new))
        return mutants

    def _mutant(self, definition: str, kind: str, old: ast.AST, new: ast.AST) -> Mutant:
        lines = self.text.encode().splitlines(keepends=True)  # columns count bytes
        first, last = old.lineno - 1, old.end_lineno
        before = b"".join(lines[first:last])
        tail = len(lines[last - 1]) - old.end_col_offset
        after = before[: old.col_offset] + written(new).encode() + before[len(before) - tail :]
        source = _short(ast.get_source_segment(self.text, old) or "")
        what = f"{self.name}:{old.lineno}: {source} -> {_short(written(new))} [{kind}]"
        return Mutant(self.name, definition, what, before.decode(), after.decode())


def _computes(node: ast.stmt) -> bool:
    if isinstance(node, (*_NEVER, ast.ClassDef)) or _is_text(node):
        return False
    return not (isinstance(node, ast.If) and _refuses(node))


def _refuses(node: ast.If) -> bool:
    """Whether an ``if`` only raises, or asks for the checker of types."""
    checking = getattr(node.test, "id", "") == "TYPE_CHECKING"
    return checking or (isinstance(node.body[-1], ast.Raise) and not node.orelse)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_text(node.value)
    name = called(node)
    return name in _SAYING or name.endswith(("Error", "Warning", "Exit"))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions of a statement in which something is computed, outermost first."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            skipped = (ast.stmt, ast.ExceptHandler, ast.JoinedStr, ast.arg)
            if not isinstance(child, ast.AST) or isinstance(child, skipped) or _is_text(child):
                continue
            if isinstance(child, ast.keyword) and child.arg in UNSEEN_OPTIONS:
                continue
            if isinstance(child, ast.expr):
                yield child
            if number(child) is None:
                yield from _parts(child)


def _names(tree: ast.Module) -> FileNames:
    """Return what the edits have to know of a file."""
    modules, neighbours = {"self", "cls"}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            modules.add(node.name)
        elif isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1:
            texts = [part.value for part in node.elts if isinstance(part, ast.Constant)]
            if len(texts) == len(node.elts) and all(isinstance(text, str) for text in texts):
                neighbours |= dict(zip(texts, [*texts[1:], texts[0]], strict=True))
    return FileNames(frozenset(modules), neighbours, "paddle" in modules)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
