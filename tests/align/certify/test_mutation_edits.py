"""Each edit of a mutant: what it makes of a line, and which lines it leaves alone."""

from __future__ import annotations

import ast

import pytest

from align.certify.mutation_edits import EXPRESSIONS, STATEMENTS
from align.certify.mutation_sites import MutableFile

MADE = [
    ("constant", "y = x[3]", ["4", "2"]),
    ("constant", "y = f(eps=1e-5)", ["2e-05"]),
    ("constant", "y = f(axis=-1)", ["0", "-2"]),
    ("sign", "y = f(size=-1)", ["1"]),
    ("sign", "y = x[-n]", ["n"]),
    ("sign", "y = x[1:]", ["-1"]),
    ("sign", "y = x.unsqueeze(-n)", ["n"]),
    ("sign", "y = -x", ["x"]),
    ("sign", "y = 0.5 + x", ["-0.5"]),
    ("flag", "y = paddle.matmul(a, b, transpose_y=True)", ["False"]),
    ("flag", "w.stop_gradient = False", ["True"]),
    ("name", "def f(start='learn'):\n    return start in ('learn', 'one')", ["'one'"]),
    ("operands", "y = a - b", ["b - a"]),
    ("operands", "y = q @ k", ["k @ q"]),
    ("operator", "y = a - b", ["a + b"]),
    ("operator", "y = a / b", ["a * b"]),
    ("operator", "y = a and b", ["a or b"]),
    ("comparison", "y = a < b", ["a <= b"]),
    ("comparison", "y = a is None", ["a is not None"]),
    ("comparison", "y = not a", ["a"]),
    ("branches", "y = a if c else b", ["b if c else a"]),
    ("dropped_call", "y = F.softmax(x, axis=1)", ["x"]),
    ("dropped_call", "y = x.detach()", ["x"]),
    ("dropped_call", "y = x.astype(np.float64)", ["x"]),
    ("dropped_call", "y = int(a * b)", ["a * b"]),
    ("dropped_call", "y = int(rng.integers(5))", ["rng"]),
    ("dropped_call", "y = self.norm(x)", ["x"]),
    ("dropped_call", "y = self.weight.clip()", ["self.weight"]),
    ("exchanged_arguments", "y = f(a, b, c)", ["f(b, a, c)"]),
    ("dropped_option", "y = f(a, axis=2, keepdim=True)", ["f(a, keepdim=True)", "f(a, axis=2)"]),
    ("order", "y = x.transpose([0, 2, 1])", ["[0, 1, 2]"]),
    ("order", "return a, b", ["(b, a)"]),
    ("transposition", "y = x.T @ w", ["x"]),
    ("detached", "y = paddle.exp(x)", ["paddle.exp(x).detach()"]),
    ("detached", "y = x + f(x)", ["(x + f(x)).detach()"]),
    ("dropped_statement", "f(x)", ["pass"]),
    ("dropped_statement", "self.scale = 2", ["pass"]),
    ("dropped_statement", "y += 2", ["pass"]),
    ("other_change", "y += x", ["y -= x"]),
    ("negated_condition", "if self.training:\n    y = 1", ["not self.training"]),
]
LEFT = [
    ("constant", "y = True"),
    ("sign", "y = x[0]"),
    ("sign", "y = x[..., 1]"),
    ("sign", "y = f(axis=-1)"),
    ("sign", "y = x.transpose([0, 2, 1])"),
    ("name", "y = 'learn'"),
    ("operands", "y = a + b"),
    ("dropped_call", "y = list(x)"),
    ("dropped_call", "y = ', '.join(x)"),
    ("dropped_call", "y = make()"),
    ("dropped_call", "y = f(*x)"),
    ("dropped_call", "y = x.astype(w.dtype)"),
    ("dropped_call", "y = bool(a < b)"),
    ("dropped_option", "y = F.softmax(x, axis=-1)"),
    ("dropped_option", "y = np.asarray(x, dtype=np.int64)"),
    ("comparison", "y = rng.random() < p"),
    ("comparison", "y = draws.uniform[0] < p"),
    ("exchanged_arguments", "y = f(a, a)"),
    ("exchanged_arguments", "y = max(a, b)"),
    ("dropped_option", "y = zip(a, b, strict=True)"),
    ("flag", "y = zip(a, b, strict=True)"),
    ("order", "y = x in ('a', 'b')"),
    ("order", "a, b = x"),
    ("order", "y = x[:, 1]"),
    ("dropped_statement", "y = 2"),
    ("detached", "y = 2 * width"),
    ("detached", "y = paddle.to_tensor(x)"),
    ("detached", "y = paddle.sign(x)"),
    ("detached", "y = paddle.exp(padding, dtype)"),
    ("detached", "y = paddle.exp(x) <= f(x)"),
    ("detached", "paddle.assign(x, output=y)"),
    ("order", "y = x in (f(a), a)"),
    ("order", "y = isinstance(x, (int, str))"),
    ("order", "y = x.startswith(('a', 'b'))"),
    ("order", "y = {one.name: one for one in (x.first, x.second)}"),
    ("operands", "y = paddle.square(a - b)"),
    ("dropped_option", "y = paddle.to_tensor(x, dtype='int64')"),
]


IMPORTS = "import paddle\nfrom paddle.nn import functional as F\n"


def edits(kind: str, line: str) -> list[str]:
    """What an edit of that kind makes of the first statement, after two imports."""
    file = MutableFile("a.py", f"{IMPORTS}{line}\n")
    statement = next(file.statements())
    return [one.after for one in file.edits(statement) if one.edit == kind]


@pytest.mark.parametrize(("kind", "line", "after"), MADE)
def test_an_edit_is_made(kind: str, line: str, after: list[str]) -> None:
    assert edits(kind, line) == after


@pytest.mark.parametrize(("kind", "line"), LEFT)
def test_a_line_is_left_alone(kind: str, line: str) -> None:
    assert edits(kind, line) == []


@pytest.mark.parametrize(
    "opened",
    ["@paddle.no_grad()\ndef f(x):", "with paddle.no_grad():", "def open_forward(self, x):"],
)
def test_no_gradient_is_cut_where_none_is_recorded(opened: str) -> None:
    file = MutableFile("a.py", f"{IMPORTS}{opened}\n    y = paddle.exp(x.detach())\n")
    found = [one for statement in file.statements() for one in file.edits(statement)]
    assert [(one.edit, one.after) for one in found] == [("dropped_call", "x.detach()")]


def test_a_loop_that_only_refuses_is_left_alone() -> None:
    lines = ["def require(x):", "    if x:", "        raise ValueError"]
    lines += ["for x in (1, f(2)):", "    require(x)"]
    lines += ["for x in (1, f(2)):", "    if x > 1:", "        raise ValueError"]
    file = MutableFile("a.py", "\n".join(lines), refusers={"require"})
    assert [one for statement in file.statements() for one in file.edits(statement)] == []


def test_every_kind_is_tested_and_parses() -> None:
    assert {kind for kind, *_ in MADE} == {*EXPRESSIONS, *STATEMENTS}
    for _, line, _ in MADE:
        file = MutableFile("a.py", f"{IMPORTS}{line}\n")
        for statement in file.statements():
            for one in file.edits(statement):
                ast.parse(one.text)
