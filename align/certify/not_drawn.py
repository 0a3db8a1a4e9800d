"""The lists ``not_mutated.toml`` (lines of which no mutant is made) and ``equal_edits.toml`` (edits
that change nothing): data with reasons."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from align.cases.covered.coverage_verdict import NotAligned, reasons_in
from align.cases.covered.syntax import SourceFile
from align.certify.value_edits import written


class NotMutated(NotAligned):
    """Lines of which no mutant is made, and why no comparison can see an edit there."""

    def lines(self, file: str, source: SourceFile) -> frozenset[int]:
        """The lines of a file that it names: statements that begin with such a line, whole, and
        single lines of longer ones; of a function whose signature holds the text, that line."""
        statements = super().lines(file, source)
        path, _, rest = self.place.partition("::")
        name, _, text = rest.partition("::")
        if path != file or not text:
            return statements
        inside = source.definitions.get(name) if name else range(1, len(source.text) + 1)
        lines = {line for line in inside or () if text in source.line(line)}
        bodies = [held for held in source.definitions.values() if min(held) in lines]
        return statements.difference(*bodies) | lines


@dataclass(frozen=True)
class EqualEdit:
    """An edit that changes nothing.

    Attributes:
        file: below the product's folder.
        old: text that occurs in it, at one place or several.
        new: what stands there instead, as a mutant has it.
        reason: why nothing changes.
    """

    file: str
    old: str
    new: str
    reason: str

    def results(self, text: str) -> Iterator[str]:
        """What becomes of the file's text, for each place."""
        at = text.find(self.old)
        while at >= 0:
            yield text[:at] + self.new + text[at + len(self.old) :]
            at = text.find(self.old, at + 1)


def _expression(text: str) -> str:
    return written(ast.parse(text, mode="eval").body)


CHANGES: Mapping[str, Callable[[str], str]] = {
    "detached": lambda text: _expression(f"({text}).detach()"),
    "inside": lambda text: _expression(text.partition("(")[2][:-1]),
    "uncast": lambda text: _expression(text.rpartition(".astype(")[0]),
}
"""Name in the list -> what it makes of a piece of text."""


_HERE = Path(__file__).parent

NOT_MUTATED = tuple(
    NotMutated(place, group["reason"])
    for group in reasons_in(_HERE / "not_mutated.toml")
    for place in group["places"]
)
EQUAL_EDITS = tuple(
    EqualEdit(file, old, *(new or [CHANGES[group["change"]](old)]), group["reason"])
    for group in reasons_in(_HERE / "equal_edits.toml")
    for file, old, *new in group["edits"]
)


def changes_nothing(file: str, before: str, after: str) -> bool:
    """Whether the edit that made a file's text another one is in the list.

    Args:
        file: below the product's folder.
        before: its text.
        after: the edited one.
    """
    return any(after in set(one.results(before)) for one in EQUAL_EDITS if file == one.file)
