"""Whether two texts are provably one program: they compile to the same code."""

from __future__ import annotations

import ast
from types import CodeType


class _Stripped(ast.NodeTransformer):
    """A tree without docstrings and without the text of annotations."""

    def visit_Module(self, node: ast.Module) -> ast.AST:  # noqa: N802
        node.body = [one for one in node.body if not _is_docstring(one)]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:  # noqa: N802
        return ast.Pass() if _is_docstring(node) else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:  # noqa: N802
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node


def same_program(before: str, after: str) -> bool:
    """Whether two texts are provably one program: the same code without docstrings, assertions and
    annotations, after the compiler has folded constants."""
    return _code(before) == _code(after)


def _code(text: str) -> tuple:
    tree = ast.fix_missing_locations(_Stripped().visit(ast.parse(text)))
    return _content(compile(tree, "file", "exec", optimize=2, dont_inherit=True))


def _content(code: CodeType) -> tuple:
    constants = tuple(
        _content(one) if isinstance(one, CodeType) else (type(one).__name__, repr(one))
        for one in code.co_consts
    )
    return (
        *(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        *(code.co_flags, code.co_argcount, code.co_kwonlyargcount, code.co_exceptiontable),
        constants,
    )


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
