"""The edits that make a mutant: each is a mistake that a programmer makes in one expression.

Every function takes a node and yields what could stand in its place. None of them knows what the
code computes, and none looks at whether a case would notice. Here those of calls, lists and
statements, and the table of all; `tools/mutation/value_edits.py` has those of values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tools.mutation.value_edits import (
    OTHER_OPERATOR,
    Edit,
    Edits,
    FileNames,
    branches,
    called,
    comparison,
    constant,
    flag,
    is_name,
    name,
    operands,
    operator,
    sign,
)

CONTAINERS = {
    "list",
    "tuple",
    "dict",
    "str",
    "iter",
    "MappingProxyType",
    "Path",
    "ascontiguousarray",
}
"""Calls that only change the kind of a container or of a file's name, or where its values lie: they
are not dropped."""
UNSEEN_OPTIONS = {
    *("strict", "repr", "stacklevel", "where", "compare", "init", "encoding"),
    *("choices", "low", "high", "unit", "example"),
}
"""Options of calls that only refuse, only say something, only shape a record's own methods, or
name the encoding that text has anyway."""
_COMMUTING = {"min", "max", "isclose", "gcd"}
_OF_TENSORS = {"paddle", "F"}
_WITHOUT_GRADIENT = {
    *("to_tensor", "zeros", "ones", "full", "arange", "eye", "rand"),
    *("zeros_like", "ones_like", "full_like", "no_grad", "auto_cast", "sign", "floor"),
}
"""Functions of Paddle whose result has no gradient to cut, or none but zero."""

_WHOLE = {"np": ("np.int64",), "paddle": ("'int64'", "paddle.int64")}
_DEFAULTS = {
    ("softmax", "axis"): "-1",
    ("log_softmax", "axis"): "-1",
    ("split", "axis"): "0",
    ("concat", "axis"): "0",
    ("index_select", "axis"): "0",
    ("svd", "full_matrices"): "False",
}
"""Options of Paddle's functions that have this value anyway."""


def dropped_call(node: ast.AST, names: FileNames) -> Edits:
    """A call left out: what went in comes out; not where that is what it does."""
    if not isinstance(node, ast.Call) or _hands_on(node):
        return
    if isinstance(node.func, ast.Attribute) and is_name(node.func.value):
        return
    if isinstance(node.func, ast.Attribute) and _is_value(node.func.value, names):
        yield node.func.value
        return
    kept = called(node) in CONTAINERS
    if node.args and not kept and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]


def exchanged_arguments(node: ast.AST, names: FileNames) -> Edits:
    """The first two arguments of a call exchanged, where their order means something."""
    commutes = isinstance(node, ast.Call) and getattr(node.func, "id", "") in _COMMUTING
    if isinstance(node, ast.Call) and not commutes and _differ(node.args[:2]):
        first, second, *rest = node.args
        yield ast.Call(node.func, [second, first, *rest], node.keywords)


def dropped_option(node: ast.AST, names: FileNames) -> Edits:
    """An option of a call left at its default; not where it has that value anyway."""
    if isinstance(node, ast.Call):
        for given in node.keywords:
            if given.arg not in (None, *UNSEEN_OPTIONS) and not _is_default(node, given):
                yield ast.Call(node.func, node.args, [k for k in node.keywords if k is not given])


def order(node: ast.AST, names: FileNames) -> Edits:
    """The last two entries of a list exchanged: axes, sizes, results; not of a list of names."""
    if isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
        kept = any(isinstance(one, ast.Slice) or is_name(one) for one in node.elts)
        if not kept and _differ(node.elts[-2:]):
            *rest, first, second = node.elts
            yield type(node)([*rest, second, first], ast.Load())


def transposition(node: ast.AST, names: FileNames) -> Edits:
    """A transposition by ``.T`` left out."""
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value


def detached(node: ast.AST, names: FileNames) -> Edits:
    """A result cut from the graph: no gradient passes."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    made = isinstance(node, ast.Call) and _root(node.func) in _OF_TENSORS
    if made and getattr(node.func, "attr", "") in _WITHOUT_GRADIENT:
        return
    if names.tensors and (made or (isinstance(node, ast.BinOp) and calls)):
        yield ast.Call(ast.Attribute(node, "detach", ast.Load()), [], [])


EXPRESSIONS: dict[str, Edit] = {
    edit.__name__: edit
    for edit in (
        constant,
        sign,
        flag,
        name,
        operands,
        operator,
        comparison,
        branches,
        dropped_call,
        exchanged_arguments,
        dropped_option,
        order,
        transposition,
        detached,
    )
}
"""Name of an edit -> what it makes of an expression."""


Changes = Iterator[tuple[ast.AST, ast.AST]]
"""A part of a statement and what stands in its place."""


def dropped_statement(node: ast.stmt) -> Changes:
    """A call for its effect, or a change of something held elsewhere, left out."""
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    changes = isinstance(node, ast.Assign) and not any(
        isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) for part in ast.walk(node)
    )
    if calls or changes or isinstance(node, ast.AugAssign):
        yield node, ast.Pass()


def other_change(node: ast.stmt) -> Changes:
    """``+=`` for ``-=``."""
    if isinstance(node, ast.AugAssign) and type(node.op) in OTHER_OPERATOR:
        yield node, ast.AugAssign(node.target, OTHER_OPERATOR[type(node.op)](), node.value)


def negated_condition(node: ast.stmt) -> Changes:
    """An ``if`` that asks for the opposite, where its condition is a single value."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)


STATEMENTS: dict[str, Callable[[ast.stmt], Changes]] = {
    edit.__name__: edit for edit in (dropped_statement, other_change, negated_condition)
}
"""Name of an edit -> what it makes of a statement."""


def _hands_on(node: ast.Call) -> bool:
    """Whether a call returns what it is given, in a run of one precision: a cast to the type of
    another tensor, and ``int``, ``float`` or ``bool`` around a draw, a mean or a comparison."""
    name, argument = called(node), node.args[0] if node.args else None
    if name == "astype":
        return isinstance(argument, ast.Attribute) and argument.attr == "dtype"
    if name not in ("int", "float", "bool") or len(node.args) != 1:
        return False
    made = _root(getattr(argument, "func", argument)), called(argument)
    return isinstance(argument, ast.Compare) or made[0] == "rng" or made == ("np", "mean")


def _is_default(node: ast.Call, given: ast.keyword) -> bool:
    if given.arg == "dtype" and ast.unparse(given.value) in _WHOLE.get(_root(node.func), ()):
        return True  # whole numbers are so without being asked
    return _DEFAULTS.get((called(node), given.arg)) == ast.unparse(given.value)


def _differ(parts: list[ast.expr]) -> bool:
    if len(parts) != 2 or any(isinstance(part, ast.Starred) for part in parts):
        return False
    return ast.dump(parts[0]) != ast.dump(parts[1])


def _root(node: ast.AST) -> str:
    """The name at the left end of ``name.a.b``; "" where there is none."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_value(node: ast.AST, names: FileNames) -> bool:
    """Whether a method is called on a computed value, not on a module, a class or the object."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        return False
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "super":
        return False
    if isinstance(node, ast.Attribute) and _root(node) in names.modules:
        return _root(node) in ("self", "cls")
    return _root(node) not in names.modules
