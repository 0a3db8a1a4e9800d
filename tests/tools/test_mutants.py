"""Mutants: what each edit makes of a line, how a frozen one is found again, and how one ends."""

from __future__ import annotations

import ast

import pytest

from tools.mutation import drawing, running
from tools.mutation.drawing import Mutant, SourceText
from tools.mutation.edits import EXPRESSIONS, STATEMENTS

IMPORTS = "import paddle\nfrom paddle.nn import functional as F\n"
MADE = [
    ("constant", "y = f(eps=1e-5)", "y = f(eps=2e-05)"),
    ("sign", "y = -x", "y = x"),
    ("flag", "w.stop_gradient = False", "w.stop_gradient = True"),
    ("operands", "y = q @ k", "y = k @ q"),
    ("operator", "y = a / b", "y = a * b"),
    ("comparison", "y = a is None", "y = a is not None"),
    ("branches", "y = a if c else b", "y = b if c else a"),
    ("dropped_call", "y = F.softmax(x, axis=1)", "y = x"),
    ("exchanged_arguments", "y = f(a, b, c)", "y = f(b, a, c)"),
    ("dropped_option", "y = f(a, axis=2)", "y = f(a)"),
    ("order", "y = x.transpose([0, 2, 1])", "y = x.transpose([0, 1, 2])"),
    ("transposition", "y = x.T @ w", "y = x @ w"),
    ("detached", "y = paddle.exp(x)", "y = paddle.exp(x).detach()"),
    ("dropped_statement", "self.scale = 2", "pass"),
    ("other_change", "y += x", "y -= x"),
    ("negated_condition", "if self.training:\n    y = 1", "if not self.training:"),
    ("name", "def f(s):\n    return s == 'one'\nNAMES = ('one', 'two')", "    return s == 'two'"),
]
LEFT = [
    ("operands", "y = a + b"),
    ("dropped_call", "y = list(x)"),
    ("exchanged_arguments", "y = max(a, b)"),
    ("detached", "y = paddle.to_tensor(x)"),
    ("dropped_option", "y = F.softmax(x, axis=-1)"),
]


def lines_made(kind: str, line: str) -> list[str]:
    """Return the lines that edits of a kind put in the place of a line."""
    file = SourceText("a.py", f"{IMPORTS}{line}\n")
    edits = [file.edits(definition, node) for definition, node in file.statements()]
    return [without_brackets(mutant.after) for made in edits for mutant in made.get(kind, ())]


def without_brackets(line: str) -> str:
    """Return a line as ``ast`` writes it; the edits put brackets around what they make."""
    return ast.unparse(ast.parse(line.strip() + (" pass" if line.rstrip().endswith(":") else "")))


@pytest.mark.parametrize(("kind", "line", "after"), MADE)
def test_an_edit_is_made(kind: str, line: str, after: str) -> None:
    assert without_brackets(after) in lines_made(kind, line)


@pytest.mark.parametrize(("kind", "line"), LEFT)
def test_a_line_is_left_alone(kind: str, line: str) -> None:
    assert lines_made(kind, line) == []


def test_every_kind_of_edit_is_tested() -> None:
    assert {kind for kind, *_ in MADE} == {*EXPRESSIONS, *STATEMENTS}


@pytest.fixture
def product(tmp_path, monkeypatch):
    """A tree with one module of two functions that share a line."""
    (tmp_path / "sot_paddle").mkdir()
    file = tmp_path / "sot_paddle" / "small.py"
    file.write_text(
        "def first(x):\n    return x + 1\n\n\ndef second(x):\n    return x + 1\n", "utf-8"
    )
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    monkeypatch.setattr(running, "ROOT", tmp_path)
    return file


SECOND = Mutant(
    "sot_paddle/small.py", "second", "+ 1 -> - 1", "    return x + 1\n", "    return x - 1\n"
)


def test_a_frozen_mutant_is_found_in_its_definition_where_lines_have_moved(product) -> None:
    product.write_text("# a new line\n" + product.read_text("utf-8"), "utf-8")
    text = SECOND.text()
    assert text.count("return x + 1") == text.count("return x - 1") == 1
    assert text.index("x + 1") < text.index("x - 1")


def test_a_frozen_mutant_is_found_in_the_one_file_to_which_its_lines_have_moved(product) -> None:
    product.rename(product.with_name("renamed.py"))
    found = drawing.standing(SECOND)
    assert (found.file, found.text().count("x - 1")) == ("sot_paddle/renamed.py", 1)
    product.with_name("copied.py").write_text(product.with_name("renamed.py").read_text("utf-8"))
    assert drawing.standing(SECOND) == SECOND


@pytest.mark.parametrize("change", [("x + 1", "1 + x"), ("def second", "def other")])
def test_a_mutant_whose_lines_are_gone_is_not_killed(product, change) -> None:
    product.write_text(product.read_text("utf-8").replace(*change), "utf-8")
    assert SECOND.text() is None
    assert running.end_of(SECOND, ["tests"]) == (running.GONE, "")


@pytest.mark.parametrize(("expected", "end"), [(4, running.KILLED), (2, running.SURVIVED)])
def test_a_fork_imports_the_mutated_file(product, expected, end) -> None:
    """In the tree ``second(3)`` is 4, in the mutant 2."""
    (product.parent / "__init__.py").write_text("", "utf-8")
    test = product.parents[1] / "test_small.py"
    test.write_text(
        f"import sys\nsys.path.insert(0, {str(product.parents[1])!r})\n"
        f"from sot_paddle import small\n\ndef test():\n    assert small.second(3) == {expected}\n",
        "utf-8",
    )
    assert running.forked_end(SECOND, SECOND.text(), "test_small.py", 60) == end
    assert "x - 1" not in product.read_text("utf-8")
