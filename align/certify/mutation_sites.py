"""Where a mutant may be made: which parts of a file compute.

Not edited, because no number can follow from it: text (messages, docstrings, f-strings, the
arguments of exceptions, warnings and logs), annotations and names of types, imports, assertions,
options of ``@dataclass`` that forbid writing, and what only refuses: a block that ends in
``raise``, the condition of such a block, a function that does nothing else, the call of one, and
values that only such lines or what is said read.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from align.cases.covered.syntax import parse
from align.certify.mutation_edits import EXPRESSIONS, STATEMENTS, UNSEEN_OPTIONS
from align.certify.no_effect import changes_nothing_there, without_gradient
from align.certify.refusals import called, calls_one, only_for_refusals, refusing_lines
from align.certify.value_edits import FileNames, number, written

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NEVER = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.Global, ast.Pass)
_SAID = {"warn", "warning", "filterwarnings", "info", "debug", "error", "print", "say", "_say"}
_TYPES = {"tuple", "list", "dict", "set", "frozenset", "type"}
_TYPING = {"typing", "collections.abc"}
_TEXTS = {"__repr__", "__str__", "extra_repr"}
_SHOWN = 110  # characters of an expression in a listing


@dataclass(frozen=True)
class Statement:
    """A statement that computes: what an edit is drawn from.

    Attributes:
        file: its path, as mutants name it.
        lines: of the statement, of a compound one of its header.
        near: lines of the function around it (of its own body, for a default), else of the class
            or the file.
        at_import: it runs when the file is imported.
        node: in the tree of the file.
    """

    file: str
    lines: range
    near: range
    at_import: bool
    node: ast.stmt


@dataclass(frozen=True)
class Mutant:
    """One edit of one file.

    Attributes:
        file, line: where.
        edit: its kind, a name of `mutation_edits`.
        before, after: the source of what is edited.
        text: of the whole file with the edit.
    """

    file: str
    line: int
    edit: str
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.before)} -> {_short(self.after)}"


class MutableFile:
    """A source file whose statements can be edited.

    Args:
        name: as mutants name it.
        text: its content.
        listed: lines that are not compared on purpose: neither their statements nor edits in them.
        refusers: names of functions that only refuse, from `refusals.only_refusing`.
    """

    def __init__(
        self, name: str, text: str, listed: Collection[int] = (), refusers: Collection[str] = ()
    ) -> None:
        self.name, self.text = name, text
        self._tree = ast.parse(text)
        source = parse(text)
        self._refusals = source.refusals | refusing_lines(self._tree, refusers)
        read_by_none = only_for_refusals(self._tree, self._refusals | _said_lines(self._tree))
        self._refusers, self._excluded = refusers, self._refusals | frozenset(listed) | read_by_none
        self._unseen = {
            name.rpartition(".")[2]
            for name, lines in source.definitions.items()
            if lines <= frozenset(listed) and not name.endswith("__")
        }
        self._no_gradient = without_gradient(self._tree)
        self._names = _names(self._tree)
        self._types = _TYPES | {
            alias.asname or alias.name
            for node in ast.walk(self._tree)
            if isinstance(node, ast.ImportFrom) and node.module in _TYPING
            for alias in node.names
        }

    def statements(self) -> Iterator[Statement]:
        """The statements of which a part computes, in the order of the file."""
        everything = range(1, self.text.count("\n") + 2)
        yield from self._below(self._tree, everything, at_import=True)

    def _below(self, node: ast.AST, near: range, at_import: bool) -> Iterator[Statement]:
        for child in ast.iter_child_nodes(node):
            own, inside = near, at_import
            if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                own = range(child.lineno, (child.end_lineno or 0) + 1)
            if isinstance(child, _FUNCTIONS):
                inside = False
                if child.name in _TEXTS:
                    continue
            if isinstance(child, ast.stmt) and self._computes(child):
                yield Statement(self.name, header(child), own, at_import, child)
            yield from self._below(child, own, inside)

    def _computes(self, node: ast.stmt) -> bool:
        if isinstance(node, _NEVER) or node.lineno in self._excluded or _is_text(node):
            return False
        if isinstance(node, ast.Expr) and called(node.value) in self._unseen:
            return False  # a call for what a function does that is not compared
        if isinstance(node, ast.Assign) and called(node.value) == "TypeVar":
            return False
        return not (isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")

    def edits(self, statement: Statement) -> list[Mutant]:
        """Every edit of a statement, in a fixed order."""
        found = self._edits(statement.node)
        return [one for one in found if one.line not in self._excluded]

    def _edits(self, node: ast.stmt) -> Iterator[Mutant]:
        guard = isinstance(node, ast.If) and not node.orelse
        if guard and self._only_refuses(node):
            return
        if guard and all(_is_text(one) for one in node.body):
            return  # whether something is said
        if isinstance(node, ast.For) and all(map(self._only_refuses, node.body)):
            return  # what is looked at before it is refused
        for kind, of_statement in STATEMENTS.items():
            for old, new in of_statement(node):
                if not self._refuses(node):
                    yield self._mutant(kind, old, new)
        nothing = changes_nothing_there(node, node.lineno in self._no_gradient)
        for part in _parts(node, self._types):
            for kind, edit in EXPRESSIONS.items():
                if (id(part), kind) in nothing:
                    continue
                for new in edit(part, self._names):
                    yield self._mutant(kind, part, new)

    def _only_refuses(self, node: ast.stmt) -> bool:
        asked = isinstance(node, ast.If) and not node.orelse
        return (node.body[0] if asked else node).lineno in self._refusals

    def _refuses(self, node: ast.stmt) -> bool:
        return calls_one(getattr(node, "value", node), self._refusers)

    def _mutant(self, kind: str, old: ast.AST, new: ast.AST) -> Mutant:
        after = ast.unparse(ast.fix_missing_locations(new))
        text = _spliced(self.text, old, written(new))
        before = ast.get_source_segment(self.text, old) or ""
        return Mutant(self.name, _line(old, new), kind, before, after, text)


def _line(old: ast.AST, new: ast.AST) -> int:
    """Where an edit is: of an option left out, the option's own line."""
    if isinstance(old, ast.Call) and isinstance(new, ast.Call):
        left = [one for one in old.keywords if one not in new.keywords]
        return left[0].lineno if left else old.lineno
    return old.lineno


def header(node: ast.stmt) -> range:
    """Lines of a statement; of one with a body, those before its body."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno
    return range(node.lineno, max(node.lineno, last or 0) + 1)


def _parts(node: ast.AST, types: Collection[str]) -> Iterator[ast.AST]:
    """The expressions of a statement in which something is computed, outermost first."""
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in types:
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_text(child):
                continue
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.JoinedStr | ast.arg):
                continue
            if isinstance(child, ast.keyword) and child.arg in UNSEEN_OPTIONS:
                continue
            if isinstance(child, ast.expr):
                yield child
            if number(child) is None:
                yield from _parts(child, types)


def _said_lines(tree: ast.Module) -> frozenset[int]:
    """Lines of the statements that only say something."""
    return frozenset(
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node)
    )


def _is_text(node: ast.AST) -> bool:
    """Whether a part only says something, or forbids writing to a record."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_text(node.value)
    if isinstance(node, ast.Assign):
        return any(getattr(target, "id", "") == "__all__" for target in node.targets)
    if not isinstance(node, ast.Call):
        return False
    name = called(node)
    return name in _SAID or name == "dataclass" or name.endswith(("Error", "Warning", "Exit"))


def _names(tree: ast.Module) -> FileNames:
    modules, neighbours = {"self", "cls"}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            modules.add(node.name)
        elif isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1:
            held = [part.value for part in node.elts if isinstance(part, ast.Constant)]
            if len(held) == len(node.elts) and all(isinstance(one, str) for one in held):
                neighbours |= dict(zip(held, [*held[1:], held[0]], strict=True))
    return FileNames(frozenset(modules), neighbours, "paddle" in modules)


def _spliced(text: str, node: ast.AST, new: str) -> str:
    """The text with another piece in the place of a node, whose columns count bytes."""
    lines = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1
    head = b"".join(lines[:first]) + lines[first][: node.col_offset]
    tail = lines[last][node.end_col_offset :] + b"".join(lines[last + 1 :])
    return (head + new.encode() + tail).decode()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
