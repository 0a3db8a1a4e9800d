"""Editing one line of a function while it is in use, and putting it back."""

from __future__ import annotations

import sys

import pytest

from tests.certificate.source_edit import SourceEdit

HERE = __name__


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


def counter(start: int):
    def count() -> int:
        return start + 1

    return count


counted = counter(4)


@pytest.fixture(autouse=True)
def _importable(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])


@pytest.mark.parametrize(
    ("target", "old", "new", "call", "before", "after"),
    [
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
        assert edit.function().__code__.co_filename == __file__
    assert call() == before


@pytest.mark.parametrize(
    ("target", "old", "new", "message"),
    [
        ("counter", "nothing", "x", "occurs 0 times, expected once"),
        ("counter", "count", "x", "occurs 3 times, expected once"),
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
