"""What of a file is mutated, what provably changes nothing, and how a mutant is written down."""

from __future__ import annotations

import ast

import pytest

from align.cases.covered.syntax import parse
from align.certify.mutation_sites import MutableFile
from align.certify.not_drawn import NotMutated
from align.certify.program_equality import same_program
from align.certify.refusals import (
    constants_for_refusals,
    only_for_refusals,
    only_refusing,
    refusing_lines,
)

TEXT = '''\
"""A file."""

from __future__ import annotations

from collections.abc import Mapping

LIMIT = 3
KINDS: Mapping[str, int] = Mapping[str, int]


def require(count: int) -> None:
    if count < 0:
        raise ValueError(f"got {count - 1}")


def root(x: float, power: float = 0.5) -> float:
    """The root."""
    require(x)
    least = x + 5
    if x > LIMIT * 2 or least > 3:
        raise ValueError("too much")
    assert x - 1
    listed = x + 7
    if x > 9:
        print(x + 8)
    y: float = (
        x
        ** power
    )
    return y


@dataclass(frozen=True)
class Point:
    size: int = 4

    def __repr__(self) -> str:
        return "p" * 3
'''


def mutants() -> list[str]:
    lines = {TEXT[: TEXT.index("listed")].count("\n") + 1}
    file = MutableFile("p/a.py", TEXT, lines, only_refusing([ast.parse(TEXT)]))
    return [str(one) for statement in file.statements() for one in file.edits(statement)]


def test_only_what_computes_is_edited() -> None:
    assert sorted(mutants()) == [
        "p/a.py:16: 0.5 -> -0.5",
        "p/a.py:16: 0.5 -> 1.0",
        "p/a.py:27: x ** power -> power ** x",
        "p/a.py:27: x ** power -> x * power",
        "p/a.py:35: 4 -> -4",
        "p/a.py:35: 4 -> 3",
        "p/a.py:35: 4 -> 5",
        "p/a.py:7: 3 -> -3",
        "p/a.py:7: 3 -> 2",
        "p/a.py:7: 3 -> 4",
    ]


def test_a_statement_knows_its_lines_and_when_it_runs() -> None:
    file = MutableFile("p/a.py", TEXT)
    found = {one.lines.start: one for one in file.statements()}
    assert found[26].lines == range(26, 30)  # of several lines
    assert found[16].lines == range(16, 17)  # a header without its body
    assert found[16].near == range(16, 31)
    assert all(found[line].at_import for line in (7, 16, 35))
    assert not found[26].at_import


def test_letters_of_several_bytes_do_not_move_an_edit() -> None:
    file = MutableFile("a.py", 'name = "é" * 2 + width * 3\n')
    texts = {one.text for one in file.edits(next(file.statements()))}
    assert 'name = "é" * 2 + width * (4)\n' in texts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 2 * 3", "x = 3 * 2"),
        ("x = 1 - 0", "x = 1 + 0"),
        ("def f(x):\n    assert x\n    return x", "def f(x):\n    return x"),
    ],
)
def test_equal_programs_are_proved(before: str, after: str) -> None:
    assert same_program(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 0.0", "x = -0.0"),
        ("def f(x=1): return x", "def f(x=2): return x"),
        ("x = a - b", "x = b - a"),
        ("def f(): return lambda: 1", "def f(): return lambda: 2"),
    ],
)
def test_other_programs_are_not(before: str, after: str) -> None:
    assert not same_program(before, after)


def test_a_function_that_changes_or_returns_something_does_not_only_refuse() -> None:
    text = """
def refuses(x):
    if x:
        raise ValueError

def calls(x):
    refuses(x)

def returns(x):
    if x:
        raise ValueError
    return x

def changes(x):
    x.y = 1
    raise ValueError

def appends(x):
    x.append(1)
    raise ValueError

def nothing(x):
    pass
"""
    assert only_refusing([ast.parse(text)]) == {"refuses", "calls"}


def test_values_that_only_a_refusal_reads() -> None:
    text = """
def read(names, limit):
    low, high = limit or (0, 1)
    wrong = [name for name in names if not is_good(name)]
    shown = ", ".join(wrong)
    odd = []
    count = len(names)
    kept = load(names)
    for name in names:
        odd.append(name)
    if wrong or low > high or odd or kept:
        raise ValueError(shown)
    return count
"""
    refusals = frozenset({12})
    # not `count`, which is returned, nor `kept`, whose making may change something
    assert only_for_refusals(ast.parse(text), refusals) == {3, 4, 5, 6, 10}


def test_sizes_that_only_a_loop_of_refusals_reads() -> None:
    text = """
def check(self, held):
    names = ("depth", "width")
    sizes = {name: getattr(self, name) for name in names}
    sizes["heads"] = 1 if self.heads is None else self.heads
    held["heads"] = len(sizes)
    wrong = [f"{name} of {show(self)}" for name in names]
    for name, size in sizes.items():
        require(name, size, wrong)
"""
    # `held` is the caller's: what is put into it may be read elsewhere
    assert only_for_refusals(ast.parse(text), frozenset({9})) == {7}
    without = text.replace('    held["heads"] = len(sizes)\n', "")
    assert only_for_refusals(ast.parse(without), frozenset({8})) == {3, 4, 5, 6}


def test_constants_that_only_refusals_of_the_package_read() -> None:
    first = """
KINDS: tuple[str, ...] = (
    "a", "b")
SHARED = 3
DEFAULT = 4
UNREAD = 5
SAID = 6
_OWN = 7

def build(kind, size=DEFAULT):
    if kind not in KINDS or size > SHARED + _OWN:
        raise ValueError(SAID)
    return size
"""
    second = "import first\n_OWN = 8\n\ndef size():\n    return first.SHARED + _OWN\n"
    third = "from first import SAID as TEXT\n\nprint(TEXT)\n"
    trees = [ast.parse(text) for text in (first, second, third)]
    files = list(zip(trees, (frozenset({12}), frozenset(), frozenset()), strict=True))
    assert set(constants_for_refusals(files[:1])) == {(0, 2), (0, 3), (0, 4), (0, 7), (0, 8)}
    assert set(constants_for_refusals(files[:2])) == {(0, 2), (0, 3), (0, 7), (0, 8)}
    assert set(constants_for_refusals(files)) == {(0, 2), (0, 3), (0, 8)}


def test_a_call_of_a_function_that_is_not_compared_is_left_alone() -> None:
    text = """
def says(x):
    print(x + 1)

def runs(x):
    says(x - 1)
    return says(x * 2)
"""
    file = MutableFile("p/a.py", text, {2, 3})
    lines = {one.line for statement in file.statements() for one in file.edits(statement)}
    assert lines == {7}


def test_a_listed_default_lists_its_line_not_the_function() -> None:
    text = "def f(x, y: int = 1):\n    return x * y\n"
    assert NotMutated("a.py::f::y: int", "why").lines("a.py", parse(text)) == {1}


def test_a_method_that_only_refuses_is_told_from_a_function_of_its_name() -> None:
    text = (
        "def check(folder):\n    folder.write()\n"
        "class Sizes:\n    def check(self, states):\n"
        "        if states:\n            raise ValueError\n"
        "class Model:\n    def forward(self, x):\n        self.config.check(x)\n        check(x)\n"
    )
    tree = ast.parse(text)
    refusers = only_refusing([tree])
    assert refusers == {"self.check/1"}
    assert 9 in refusing_lines(tree, refusers)
    assert 10 not in refusing_lines(tree, refusers)


def test_what_is_only_said_or_timed_is_left_alone() -> None:
    text = """
import time
def load(count, took):
    new = f", {count}" if count and took else ""
    kept = count + 1 if took else 0
    say(f"loaded{new}")
    spent = time.monotonic() - took
    return kept, spent
"""
    file = MutableFile("x.py", text)
    lines = {one.line for statement in file.statements() for one in file.edits(statement)}
    assert lines == {5, 8}
    read = MutableFile("x.py", text.replace("return kept", "return new"))
    lines = {one.line for statement in read.statements() for one in read.edits(statement)}
    assert 4 in lines
