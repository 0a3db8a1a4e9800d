"""Which functions and values of a package only refuse: what they decide is whether it raises."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PURE = {
    *("all", "any", "dict", "enumerate", "float", "getattr", "int", "isinstance", "len", "list"),
    *("max", "min", "next", "range", "repr", "set", "sorted", "str", "sum", "tuple", "zip"),
    *("endswith", "exists", "get", "is_dir", "is_file", "isdigit", "items", "join", "keys"),
    *("encode", "isascii", "special", "startswith", "union", "values", "world_size"),
}
"""Calls that change nothing; so does a function whose name begins with ``is_``."""


def called(node: ast.AST) -> str:
    """The last name of what is called, "" for no call."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def calls_one(node: ast.AST, refusers: Collection[str]) -> bool:
    """Whether a call is of a function that only refuses (names from `only_refusing`)."""
    name, base = called(node), getattr(node, "func", node)
    while isinstance(base, ast.Attribute):
        base = base.value
    of_self = isinstance(base, ast.Name) and base.id == "self"
    own = f"self.{name}/{len(getattr(node, 'args', ()))}"
    return name in refusers or (of_self and own in refusers)


def only_refusing(trees: Iterable[ast.Module]) -> set[str]:
    """Names of functions that return nothing, change nothing and can only raise.

    A name counts when every function of that name is one; they may call each other. What is called
    on ``self`` or on what it holds is a method: ``self.NAME/COUNT`` counts when every method of so
    many parameters is one.
    """
    functions: dict[str, list[ast.AST]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                functions.setdefault(node.name, []).append(node)
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(part, _FUNCTIONS):
                    own = f"self.{part.name}/{len(part.args.args) - 1}"
                    functions.setdefault(own, []).append(part)
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
            if called(node.value) in _PURE:  # for the exception that it may raise
                continue
            if not calls_one(node.value, known):
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
        elif isinstance(node, ast.Expr) and calls_one(node.value, refusers):
            found.add(node.lineno)
    return frozenset(found)


def only_for_refusals(tree: ast.Module, refusals: Collection[int]) -> frozenset[int]:
    """Lines of the statements that make values which nothing but a refusal reads.

    Args:
        tree: of a file.
        refusals: its lines whose only way out is an exception.
    """
    found: set[int] = set()
    for function in ast.walk(tree):
        outer = any(isinstance(one, ast.Global | ast.Nonlocal) for one in ast.walk(function))
        if isinstance(function, _FUNCTIONS) and not outer:
            for statement in _for_refusals(function, refusals):
                found.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return frozenset(found)


def constants_for_refusals(
    files: Iterable[tuple[ast.Module, Collection[int]]],
) -> Iterator[tuple[int, int]]:
    """Lines of the constants of a package that nothing but refusals reads, in none of its files.

    A constant is told by its name: where two files have a public one of that name, both count.

    Args:
        files: each one's tree, and its lines whose only way out is an exception.

    Yields:
        Number of the file and a line of it.
    """
    held = list(files)
    read: set[tuple[int, str]] = set()
    elsewhere: set[tuple[int, str]] = set()
    for number, (tree, refusals) in enumerate(held):
        read |= _told_apart(number, _names_in([tree]))
        for statement in ast.walk(tree):
            if isinstance(statement, ast.stmt):
                names = set(_names_in(_own_parts(statement, refusals)))
            elif isinstance(statement, ast.arguments):
                defaults = [*statement.defaults, *filter(None, statement.kw_defaults)]
                names = set(_names_in(defaults))
            elif isinstance(statement, ast.alias) and statement.asname:
                names = {statement.name}
            else:
                continue
            elsewhere |= _told_apart(number, names)
    for number, (tree, _) in enumerate(held):
        for statement in tree.body:
            made = _told_apart(number, _made(statement))
            if made and made <= read - elsewhere:
                lines = range(statement.lineno, (statement.end_lineno or 0) + 1)
                yield from ((number, line) for line in lines)


def _told_apart(file: int, names: Iterable[str]) -> set[tuple[int, str]]:
    """Names with the file that they belong to; a public one belongs to all of them (-1)."""
    return {(file if name.startswith("_") else -1, name) for name in names}


def _names_in(parts: Iterable[ast.AST]) -> Iterator[str]:
    """Names that are read in parts of a tree, by themselves or as an attribute."""
    for part in parts:
        for node in ast.walk(part):
            if isinstance(getattr(node, "ctx", None), ast.Load):
                yield getattr(node, "id", getattr(node, "attr", ""))


def _for_refusals(function: ast.AST, refusals: Collection[int]) -> list[ast.stmt]:
    """The statements of a function whose names are read by refusals, or for such a statement."""
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
    read = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    given = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    makers = [
        (one, names)
        for one in statements
        if (names := _made(one)) & read and not names & given and _is_pure(one)
    ]
    while True:
        left = {
            node.id
            for one in statements
            if not any(one is maker for maker, _ in makers)
            for part in _own_parts(one, refusals)
            for node in ast.walk(part)
            if isinstance(node, ast.Name)
        }
        kept = [(one, names) for one, names in makers if not names & left]
        if len(kept) == len(makers):
            return [one for one, _ in kept]
        makers = kept


def _own_parts(statement: ast.stmt, refusals: Collection[int]) -> Iterator[ast.AST]:
    """What a statement reads itself: without the statements in it, or a guard's question."""
    if statement.lineno in refusals:
        return
    asks = isinstance(statement, ast.If) and not statement.orelse
    if asks and statement.body[0].lineno in refusals:
        return
    if isinstance(statement, ast.For) and all(one.lineno in refusals for one in statement.body):
        return
    for part in ast.iter_child_nodes(statement):
        if not isinstance(part, ast.stmt | ast.ExceptHandler | ast.arguments):
            yield part


def _made(statement: ast.stmt) -> set[str]:
    """Names of the local values that a statement makes or adds to."""
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and called(statement.value) in ("add", "append"):
        function = getattr(statement.value, "func", None)
        targets = [getattr(function, "value", statement.value)]
    else:
        return set()
    targets = [one.value if isinstance(one, ast.Subscript) else one for one in targets]
    flat = [part for one in targets for part in getattr(one, "elts", [one])]
    if not all(isinstance(one, ast.Name) for one in flat):
        return set()
    return {one.id for one in flat if isinstance(one, ast.Name)}


def _is_pure(statement: ast.stmt) -> bool:
    """Whether the value of a statement is made without a change of anything else."""
    said = {
        id(part)
        for text in ast.walk(statement)
        if isinstance(text, ast.JoinedStr)
        for part in ast.walk(text)
    }
    calls = [
        node for node in ast.walk(statement) if isinstance(node, ast.Call) and id(node) not in said
    ]
    if isinstance(statement, ast.Expr):
        calls = [node for node in calls if node is not statement.value]
    return all(called(one) in _PURE or called(one).lstrip("_")[:3] == "is_" for one in calls)
