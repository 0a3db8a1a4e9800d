"""Edits that change nothing because of what stands around them: they are not drawn."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from align.certify.refusals import called
from align.certify.value_edits import number

_EVEN = {"square", "abs"}
"""Functions for which the sign of their argument makes no difference."""
_LOOKS = {"isinstance", "issubclass", "startswith", "endswith"}
"""Functions that look something up in what they are given as a tuple."""
_NO_TENSORS = {"paddle", "np", "F", "dtype"}
"""Names beside those of tensors: modules, and a precision."""
_WITHOUT_GRADIENT = ("mask", "padding", "labels", "input_ids", "token_type_ids", "positions")
"""Names of tensors that have none: truth values and whole numbers; also the end of a name."""
_AXES_GIVEN_TO = {"flatten", "squeeze", "transpose", "unsqueeze"}
"""Functions whose numbers are axes."""
_CLOCKS = {"monotonic", "perf_counter", "process_time"}
_OF_EXPORTS = "open_forward"
"""What layers compute where a graph is traced for an export: nothing is trained there."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def without_gradient(tree: ast.Module) -> frozenset[int]:
    """Lines that run under ``paddle.no_grad``: functions it decorates, blocks it opens, exports."""
    found: set[int] = set()
    for node in ast.walk(tree):
        openers = [*getattr(node, "decorator_list", ())]
        if isinstance(node, ast.With):
            openers = [item.context_expr for item in node.items]
        elif not isinstance(node, _FUNCTIONS):
            continue
        exports = getattr(node, "name", "") == _OF_EXPORTS
        if exports or any(called(opener) == "no_grad" for opener in openers):
            found.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return frozenset(found)


def changes_nothing_there(statement: ast.stmt, no_gradient: bool) -> set[tuple[int, str]]:
    """The edits of a statement's parts that its other parts make meaningless.

    A gradient cut from a truth value, from what is made of masks or labels alone, from a result
    that nobody takes or where none is recorded; the order of what something is looked up in, or of
    what is looked up by name; the sign of what is squared; how long something took. From which end
    an axis or an index counts: two ends are often one place, and the edits `constant` name the
    places beside it.

    Args:
        statement: the statement.
        no_gradient: no gradient is recorded where it stands.

    Returns:
        ``id`` of a part and a kind of edit.
    """
    found: set[tuple[int, str]] = set()
    if isinstance(statement, ast.Expr):
        found.add((id(statement.value), "detached"))
    for node in ast.walk(statement):
        if no_gradient or _of_masks(node):
            found.update(_cuts(node))
        if isinstance(node, ast.Compare):
            found.update(cut for part in ast.walk(node) for cut in _cuts(part))
            looks = isinstance(node.ops[0], ast.In | ast.NotIn)
            found.update((id(one), "order") for one in node.comparators if looks)
        if isinstance(node, ast.BinOp) and _CLOCKS & {called(node.left), called(node.right)}:
            found.update((id(node), kind) for kind in ("operands", "operator"))
        if isinstance(node, ast.DictComp):
            found.update((id(one.iter), "order") for one in node.generators)
        if called(node) in _LOOKS and isinstance(node, ast.Call):
            found.update((id(one), "order") for one in node.args)
        if called(node) in _EVEN and isinstance(node, ast.Call):
            found.update((id(one), "operands") for one in node.args if _is_difference(one))
        for place in _places(node):
            found.update((id(one), "sign") for one in ast.walk(place) if number(one) is not None)
    return found


def _places(node: ast.AST) -> Iterator[ast.AST]:
    """The axes and indices that an expression names; the ends of a slice are none."""
    if isinstance(node, ast.Subscript):
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        yield from (index for index in indices if not isinstance(index, ast.Slice))
    elif isinstance(node, ast.Call):
        yield from (option.value for option in node.keywords if option.arg in ("axis", "dim"))
        if called(node) in _AXES_GIVEN_TO:
            yield from node.args


def _cuts(node: ast.AST) -> Iterator[tuple[int, str]]:
    yield id(node), "detached"
    if called(node) == "detach":
        yield id(node), "dropped_call"


def _of_masks(node: ast.AST) -> bool:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - _NO_TENSORS
    return bool(names) and all(name.endswith(_WITHOUT_GRADIENT) for name in names)


def _is_difference(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
