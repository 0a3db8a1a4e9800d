"""Whether two texts are provably one program: they compile to the same code."""

from __future__ import annotations

from types import CodeType


def same_program(before: str, after: str) -> bool:
    """Whether two texts are provably one program: the same code without assertions, after the
    compiler has folded constants."""
    return _code(before) == _code(after)


def _code(text: str) -> tuple:
    return _content(compile(text, "file", "exec", optimize=2, dont_inherit=True))


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
