"""The edits that make a mutant: each is a mistake that a programmer makes in one expression.

Every function takes a node and yields what could stand in its place. None of them knows what the
code computes, and none looks at whether a case would notice.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

_OTHER_OPERATOR: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_OTHER_COMPARISON: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
CONTAINERS = {"list", "tuple", "dict", "str", "iter"}
"""Calls that only change the kind of a container: they are not dropped."""
UNSEEN_OPTIONS = {"strict", "repr", "stacklevel"}
"""Options of calls that only refuse or only say something."""
_COMMUTING = {"min", "max", "isclose", "gcd"}
_OF_TENSORS = {"paddle", "F"}
_WITHOUT_GRADIENT = {"to_tensor", "zeros", "ones", "full", "arange", "no_grad", "auto_cast"}
"""Functions of Paddle whose result has no gradient to cut."""


@dataclass(frozen=True)
class FileNames:
    """What an edit has to know of its file.

    Attributes:
        modules: names that stand for an imported module, a class or ``self``: no values.
        neighbours: a string -> the next one of the list of names that holds it.
        tensors: the file computes with Paddle's tensors.
    """

    modules: Collection[str]
    neighbours: dict[str, str]
    tensors: bool


Edits = Iterator[ast.AST]
Edit = Callable[[ast.AST, FileNames], Edits]


def number(node: ast.AST) -> int | float | None:
    """The value of a number as it is written, with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        below = number(node.operand)
        return None if below is None else -below
    plain = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return node.value if plain else None


def constant(node: ast.AST, names: FileNames) -> Edits:
    """Another number: one more or one less, twice as much."""
    value = number(node)
    if isinstance(value, int):
        yield _written(value + 1)
        yield _written(value - 1)
    elif value is not None:
        yield _written(2 * value if value else 1.0)


def sign(node: ast.AST, names: FileNames) -> Edits:
    """A number, or a negated value, with the other sign."""
    value = number(node)
    if value:
        yield _written(-value)
    elif value is None and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def flag(node: ast.AST, names: FileNames) -> Edits:
    """True for False: a switch, a default, a transposition, what has no gradient."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)


def name(node: ast.AST, names: FileNames) -> Edits:
    """The next name of a list of names that the file holds."""
    if _is_name(node):
        other = names.neighbours.get(node.value)
        if other is not None:
            yield ast.Constant(other)


def operands(node: ast.AST, names: FileNames) -> Edits:
    """Two operands exchanged."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ORDERED):
        yield ast.BinOp(node.right, node.op, node.left)


def operator(node: ast.AST, names: FileNames) -> Edits:
    """Plus for minus, times for divided by, and for or."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OTHER_OPERATOR:
        yield ast.BinOp(node.left, _OTHER_OPERATOR[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)


def comparison(node: ast.AST, names: FileNames) -> Edits:
    """A comparison that includes its limit or not, or the opposite one; a ``not`` left out."""
    if isinstance(node, ast.Compare):
        first, *rest = node.ops
        yield ast.Compare(node.left, [_OTHER_COMPARISON[type(first)](), *rest], node.comparators)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def branches(node: ast.AST, names: FileNames) -> Edits:
    """The two results of a condition exchanged."""
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


def dropped_call(node: ast.AST, names: FileNames) -> Edits:
    """A call left out: what went in comes out."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute) and _is_name(node.func.value):
        return
    if isinstance(node.func, ast.Attribute) and _is_value(node.func.value, names):
        yield node.func.value
        return
    kept = getattr(node.func, "id", "") in CONTAINERS
    if node.args and not kept and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]


def exchanged_arguments(node: ast.AST, names: FileNames) -> Edits:
    """The first two arguments of a call exchanged, where their order means something."""
    commutes = isinstance(node, ast.Call) and getattr(node.func, "id", "") in _COMMUTING
    if isinstance(node, ast.Call) and not commutes and _differ(node.args[:2]):
        first, second, *rest = node.args
        yield ast.Call(node.func, [second, first, *rest], node.keywords)


def dropped_option(node: ast.AST, names: FileNames) -> Edits:
    """An option of a call left at its default."""
    if isinstance(node, ast.Call):
        for given in node.keywords:
            if given.arg is not None and given.arg not in UNSEEN_OPTIONS:
                yield ast.Call(node.func, node.args, [k for k in node.keywords if k is not given])


def order(node: ast.AST, names: FileNames) -> Edits:
    """The last two entries of a list exchanged: axes, sizes, results; not of a list of names."""
    if isinstance(node, ast.List | ast.Tuple) and isinstance(node.ctx, ast.Load):
        kept = any(isinstance(one, ast.Slice) or _is_name(one) for one in node.elts)
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
    if isinstance(node, ast.AugAssign) and type(node.op) in _OTHER_OPERATOR:
        yield node, ast.AugAssign(node.target, _OTHER_OPERATOR[type(node.op)](), node.value)


def negated_condition(node: ast.stmt) -> Changes:
    """An ``if`` that asks for the opposite, where its condition is a single value."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)


STATEMENTS: dict[str, Callable[[ast.stmt], Changes]] = {
    edit.__name__: edit for edit in (dropped_statement, other_change, negated_condition)
}
"""Name of an edit -> what it makes of a statement."""


def _written(value: int | float) -> ast.AST:
    return ast.parse(repr(value), mode="eval").body


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


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
