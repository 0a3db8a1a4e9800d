"""Which checks a mutant has to get past, cheapest first: those that run what was edited."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from align.cases.tables.cases import CASES
from align.certify.mutation_sites import Statement
from align.certify.scenes import SCENES

SCENE = "scene "
"""What the name of a check begins with when it is a scene of the certificate, not a case."""
READING = ("defaults_", "tables_")
"""How the cases are called that read tables and the defaults of signatures."""
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CheckRecord:
    """What one check runs.

    Attributes:
        name: of the check; "" for what the import of the project runs.
        seconds: it takes.
        lines: by file, named as mutants name it.
    """

    name: str
    seconds: float
    lines: Mapping[str, frozenset[int]]


def check_names() -> list[str]:
    """Every check: the cases of the quick suite and the scenes."""
    return [*(case.name for case in CASES if case.quick), *(SCENE + name for name in SCENES)]


class Checks:
    """The checks of some files.

    Args:
        records: of each check, and of the import.
        texts: of the files, and of those that may import them, by name.
    """

    def __init__(self, records: Sequence[CheckRecord], texts: Mapping[str, str]) -> None:
        found = [one for one in records if not one.name]
        self._imported = {file: lines for one in found for file, lines in one.lines.items()}
        self._ran = [
            CheckRecord(one.name, one.seconds, self._without_import(one.lines))
            for one in sorted(records, key=lambda one: one.seconds)
            if one.name
        ]
        self._importers = importers(texts)

    def _without_import(self, lines: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        return {file: held - self._imported.get(file, _NONE) for file, held in lines.items()}

    def past(self, statement: Statement) -> list[tuple[str, float]]:
        """The checks for an edit of a statement: name and seconds.

        Those that run its lines. A default in a signature matters to those that run its function.
        Whatever else runs at the import (a table, a field) matters to those that run the class or
        file around it, and then to those that run anything of a file that imports its file. Both
        may be read without being run: the cases that read them come first.
        """
        file, lines = statement.file, statement.lines
        at_import = not self._imported.get(file, _NONE).isdisjoint(lines)
        if not (at_import or statement.at_import):
            return _named(self._those(file, lines))
        near = self._those(file, statement.near)
        reading = [one for one in self._ran if one.name.startswith(READING)]
        signature = isinstance(statement.node, ast.FunctionDef)
        around = () if signature else (file, *self._importers.get(file, ()))
        further = [one for one in self._ran if any(one.lines.get(name) for name in around)]
        return _named(list({one.name: one for one in (*reading, *near, *further)}.values()))

    def _those(self, file: str, lines: range) -> list[CheckRecord]:
        return [one for one in self._ran if not one.lines.get(file, _NONE).isdisjoint(lines)]


def _named(checks: Sequence[CheckRecord]) -> list[tuple[str, float]]:
    return [(one.name, one.seconds) for one in checks]


def importers(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """File -> the files that import it by name."""
    found: dict[str, set[str]] = {}
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                below = node.module.replace(".", "/")
                for path in (below, *(f"{below}/{alias.name}" for alias in node.names)):
                    if f"{path}.py" in texts:
                        found.setdefault(f"{path}.py", set()).add(name)
    return found
