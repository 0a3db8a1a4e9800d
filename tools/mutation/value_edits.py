"""Edits of values: numbers, signs, switches, operands and operators; `edits` has the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

OTHER_OPERATOR: dict[type, type] = {
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
"""An operator -> the one that is written in its place."""
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
_DRAWN = re.compile(r"rng\.random\(\)|draws\.uniform\[\d\]$")
"""A random number, or an array of them."""
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)


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


def called(node: ast.AST) -> str:
    """The last name of what is called, "" for no call."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


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
    if is_name(node):
        other = names.neighbours.get(node.value)
        if other is not None:
            yield ast.Constant(other)


def operands(node: ast.AST, names: FileNames) -> Edits:
    """Two operands exchanged."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ORDERED):
        yield ast.BinOp(node.right, node.op, node.left)


def operator(node: ast.AST, names: FileNames) -> Edits:
    """Plus for minus, times for divided by, and for or."""
    if isinstance(node, ast.BinOp) and type(node.op) in OTHER_OPERATOR:
        yield ast.BinOp(node.left, OTHER_OPERATOR[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)


def comparison(node: ast.AST, names: FileNames) -> Edits:
    """A comparison that includes its limit or not, or the opposite one; a ``not`` left out.

    Not where a random number meets a limit, which it never equals.
    """
    if isinstance(node, ast.Compare) and not _DRAWN.match(ast.unparse(node.left)):
        first, *rest = node.ops
        yield ast.Compare(node.left, [_OTHER_COMPARISON[type(first)](), *rest], node.comparators)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def branches(node: ast.AST, names: FileNames) -> Edits:
    """The two results of a condition exchanged."""
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


def written(new: ast.AST) -> str:
    """The text that an edit puts somewhere; in brackets where what is around could split it."""
    text = ast.unparse(ast.fix_missing_locations(new))
    plain = isinstance(new, ast.stmt | ast.Name | ast.Attribute | ast.Call)
    return text if plain else f"({text})"


def is_name(node: ast.AST) -> bool:
    """Whether a node is a text as it is written."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _written(value: int | float) -> ast.AST:
    return ast.parse(repr(value), mode="eval").body
