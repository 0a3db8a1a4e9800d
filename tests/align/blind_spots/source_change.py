"""Plants a change in the product as its author would have typed it; no tests here."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import pytest


def change_source(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str
) -> None:
    """Replace one piece of the text of the function ``owner.name`` until the test ends.

    Args:
        monkeypatch: of the test.
        owner: the class, or the module that calls the function (which may have it from another).
        name: of the function.
        old: text that occurs once in it.
        new: what stands there instead.
    """
    static = inspect.getattr_static(owner, name)
    function = inspect.unwrap(getattr(static, "__func__", static))
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}"
    made: dict[str, Any] = {}
    lines = textwrap.indent(text.replace(old, new), "    ")  # super() asks for __class__
    whole = f"def make(__class__):\n{lines}\n    return {function.__name__}\n"
    future = "from __future__ import annotations\n"
    exec(compile(future + whole, inspect.getfile(function), "exec"), function.__globals__, made)
    kind = next((k for k in getattr(owner, "__mro__", ()) if name in vars(k)), owner)
    monkeypatch.setattr(owner, name, made["make"](kind))
