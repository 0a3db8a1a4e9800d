"""Editing one line of a function while it is in use, and putting it back."""

from __future__ import annotations

import functools
import inspect

import pytest

from tests.certificate.source_edit import SourceEdit

HERE = __name__


def loud(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + "!"

    return wrapper


class Base:
    def greet(self) -> str:
        return "good"


class Child(Base):
    def greet(self) -> str:
        text = super().greet()
        return text + " day"

    @staticmethod
    def fixed() -> int:
        return 40 + 2


@loud
def plain(name: str) -> str:
    return "hello " + name


def counter(start: int):
    def count() -> int:
        return start + 1

    return count


counted = counter(4)


@pytest.fixture(autouse=True)
def _importable(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, HERE, inspect.getmodule(plain) or sys.modules.get(HERE))


@pytest.mark.parametrize(
    ("target", "old", "new", "call", "before", "after"),
    [
        ("plain", "hello", "bye", lambda: plain("you"), "hello you!", "bye you!"),
        ("Child.greet", '" day"', '" night"', lambda: Child().greet(), "good day", "good night"),
        ("Child.fixed", "40", "1", Child.fixed, 42, 3),
        ("counted", "+ 1", "+ 2", counted, 5, 6),
    ],
)
def test_every_kind_of_function(target, old, new, call, before, after) -> None:
    edit = SourceEdit(f"{HERE}:{target}", old, new)
    assert call() == before
    with edit.applied():
        assert call() == after
    assert call() == before


def test_the_function_keeps_file_and_line() -> None:
    edit = SourceEdit(f"{HERE}:Child.greet", '" day"', '" night"')
    line = Child.greet.__code__.co_firstlineno
    with edit.applied():
        code = Child.greet.__code__
        assert (code.co_firstlineno, code.co_filename) == (line, __file__)


def test_it_is_put_back_after_an_error() -> None:
    def fail() -> None:
        with SourceEdit(f"{HERE}:plain", "hello", "bye").applied():
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert plain("you") == "hello you!"


@pytest.mark.parametrize(
    ("target", "old", "new", "message"),
    [
        ("plain", "nothing", "x", "occurs 0 times, expected once"),
        ("plain", "name", "x", "occurs 2 times, expected once"),
        ("missing", "a", "b", "'missing' does not exist"),
        ("HERE", "a", "b", "expected a Python function"),
        ("Child.greet", "self)", "self, more=1)", "the signature cannot be edited"),
        ("counted", "start + 1", "7", r"takes from around it \(start\)"),
    ],
)
def test_what_cannot_be_edited_is_refused(target, old, new, message) -> None:
    edit = SourceEdit(f"{HERE}:{target}", old, new)
    with pytest.raises(ValueError, match=message), edit.applied():
        pass
