"""One line of the Paddle side's source changed while a scene runs, as a programmer would change it.

The function keeps its identity, its module and its line numbers; only its code object is exchanged,
so that every object that already refers to it runs the edited text.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from align.frameworks.watched_calls import attributes


@dataclass(frozen=True)
class SourceEdit:
    """A piece of text in the body of one function and what stands there instead.

    Attributes:
        target: "package.module:Class.method" or "package.module:function".
        old: text that occurs exactly once in the function's source.
        new: what replaces it.
    """

    target: str
    old: str
    new: str

    def applied(self) -> AbstractContextManager[None]:
        """Run the edited text for the length of a ``with`` block.

        Raises:
            ValueError: the text is not there once, or its change needs more than a new body.
        """
        function = self.function()
        return attributes(function, __code__=self._compiled(function))

    def function(self) -> FunctionType:
        """The function that is edited, without its decorators.

        Raises:
            ValueError: there is no such function.
        """
        module, _, path = self.target.partition(":")
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            if not hasattr(found, name):
                raise ValueError(f"{self.target}: {name!r} does not exist; expected a function")
            found = getattr(found, name)
        found = inspect.unwrap(getattr(found, "__func__", found))
        if not isinstance(found, FunctionType):
            raise ValueError(f"{self.target}: expected a Python function, got {found!r}")
        return found

    def _compiled(self, function: FunctionType) -> CodeType:
        lines, first = inspect.getsourcelines(function)
        source = "".join(lines)
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.target}: {self.old!r} occurs {source.count(self.old)} times, expected "
                "once: the source has changed, so bring the fault up to date"
            )
        before, after = (
            ast.parse(textwrap.dedent(text)).body[0]
            for text in (source, source.replace(self.old, self.new))
        )
        if ast.dump(before.args) != ast.dump(after.args):
            raise ValueError(f"{self.target}: the signature cannot be edited, only the body")
        after.decorator_list = []
        ast.increment_lineno(after, first - 1)
        own = function.__code__
        made = compile(_enclosed(after, own.co_freevars), own.co_filename, "exec")
        code = _find(made, function.__name__)
        if code is None or code.co_freevars != own.co_freevars:
            raise ValueError(
                f"{self.target}: the edit changes what the function takes from around it "
                f"({', '.join(own.co_freevars) or 'nothing'})"
            )
        return code


def _enclosed(function: ast.stmt, outside: tuple[str, ...]) -> ast.Module:
    """A module in which the function sees the names it takes from around it."""
    body: list[ast.stmt] = [function]
    if "__class__" in outside:
        held = ast.parse("class Owner: pass").body[0]
        held.body = body
        body = [held]
    names = [name for name in outside if name != "__class__"]
    if names:
        outer = ast.parse(f"def outer():\n    {' = '.join(names)} = None").body[0]
        outer.body += body
        body = [outer]
    return ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))


def _find(code: CodeType, name: str) -> CodeType | None:
    """The code object of that name inside another one, the outermost first."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    named = [one for one in inner if one.co_name == name]
    below = [found for one in inner if (found := _find(one, name)) is not None]
    return next(iter([*named, *below]), None)
