"""Rules of reading as a test: names, first lines of docstrings, comprehensions, unpacked arguments.

The numbers are those of places from before the rules; they may only fall.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BARE = {"found", "held", "said", "own", "one", "made", "told", "given", "drawn", "known", "theirs"}
"""Names that do not say what they hold; `place` is a word of the reports."""
RIDDLES = ("The same", "It ", "And ", "As `", "As above", "Like ", "Also ")
"""How a first docstring line begins that does not stand alone."""
OLD = {
    "sot_paddle": {"names": 0, "docstrings": 0, "expressions": 45, "unpacked arguments": 21},
    "sot_torch_ref": {"names": 13, "docstrings": 0, "expressions": 4, "unpacked arguments": 10},
    "align": {"names": 0, "docstrings": 0, "expressions": 0, "unpacked arguments": 0},
    "tools": {"names": 20, "docstrings": 0, "expressions": 4, "unpacked arguments": 1},
}


def bare_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield line and name where one without a meaning is assigned, looped over or an argument."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in BARE:
            yield f"{node.lineno}: {node.id}"
        if isinstance(node, ast.arg) and node.arg in BARE:
            yield f"{node.lineno}: {node.arg}"


def docstrings_that_do_not_stand_alone(nodes: list[ast.AST]) -> Iterator[int]:
    """Yield the lines of definitions whose first docstring line needs another one."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in nodes:
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text and text.startswith(RIDDLES):
            yield getattr(node, "lineno", 1)


def crowded_expressions(nodes: list[ast.AST]) -> Iterator[int]:
    """Yield comprehensions of several clauses, lambdas with defaults, generators into zip."""
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    for node in nodes:
        if isinstance(node, kinds):
            conditions = sum(len(clause.ifs) for clause in node.generators)
            if len(node.generators) > 1 or conditions > 1:
                yield node.lineno
        elif isinstance(node, ast.Lambda) and (node.args.defaults or node.args.kw_defaults):
            yield node.lineno
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "zip":
            unpacked = [one.value for one in node.args if isinstance(one, ast.Starred)]
            if any(isinstance(value, ast.GeneratorExp) for value in unpacked):
                yield node.lineno


def unpacked_literals(nodes: list[ast.AST]) -> Iterator[int]:
    """Yield calls into which a tuple or dict of the same function, written out, is unpacked."""
    lines = set()
    for function in nodes:
        if not isinstance(function, ast.FunctionDef):
            continue
        literals = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.Dict)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(function):
            if isinstance(call, ast.Call):
                unpacked = [arg.value for arg in call.args if isinstance(arg, ast.Starred)]
                unpacked += [word.value for word in call.keywords if word.arg is None]
                if any(isinstance(value, ast.Name) and value.id in literals for value in unpacked):
                    lines.add(call.lineno)
    yield from sorted(lines)


RULES = {
    "names": bare_names,
    "docstrings": docstrings_that_do_not_stand_alone,
    "expressions": crowded_expressions,
    "unpacked arguments": unpacked_literals,
}


@pytest.mark.parametrize("package", OLD)
def test_no_place_breaks_a_rule_that_did_not_before(package: str) -> None:
    broken = {rule: [] for rule in RULES}
    for path in sorted((ROOT / package).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))  # walked once
        for rule, lines in RULES.items():
            broken[rule] += [f"{path.relative_to(ROOT)}:{line}" for line in lines(nodes)]
    more = {rule: places for rule, places in broken.items() if len(places) > OLD[package][rule]}
    assert more == {}


BREAKING = """
def first(found):
    "The same as `second`."
    given = (1, 2)
    print(*given)
    return [a for b in found for a in b], lambda x=1: x, zip(*(row for row in found))


def second(rows):
    "Return the first and the last row."
    return [row for row in rows if row], print(*rows), zip(*rows)
"""


def test_a_broken_rule_is_found() -> None:
    nodes = list(ast.walk(ast.parse(BREAKING)))
    lines = {rule: sorted(search(nodes)) for rule, search in RULES.items()}
    assert lines == {
        "names": ["2: found", "4: given"],
        "docstrings": [2],
        "expressions": [6, 6, 6],
        "unpacked arguments": [5],
    }
