"""Judge what ran of the product: a line that no case runs has to be listed, with a reason.

A place is a line that did not run, or a jump between two lines that was never made. A place is
accepted when it only refuses (its block ends in ``raise``) or when the list names it; an entry of
the list that accepts nothing is refused itself, so that the list cannot grow old.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from align.cases.covered.measure import FileRecord, Record
from align.cases.covered.syntax import SourceFile

PRODUCT_NAME = "sot_paddle"


@dataclass(frozen=True)
class NotAligned:
    """An entry of the list of what is deliberately not compared.

    Attributes:
        place: ``file``, ``file::Class.function``, or ``file::Class.function::text`` for the
            statements there whose first line holds the text, with their first block; the function
            may be left out (``file::::text``).
        reason: why.
        by_chance: its lines run in some runs (a clock decides); it is never stale.
    """

    place: str
    reason: str
    by_chance: bool = False

    def lines(self, file: str, source: SourceFile) -> frozenset[int]:
        """The lines of a file that it names; none when it names another file."""
        path, _, rest = self.place.partition("::")
        name, _, text = rest.partition("::")
        if path != file:
            return frozenset()
        everything = frozenset(range(1, len(source.text) + 1))
        inside = source.definitions.get(name, frozenset()) if name else everything
        if not text:
            return inside
        starts = [at for at in source.blocks if at in inside and text in source.line(at)]
        return frozenset().union(*(source.blocks[at] for at in starts))


def reasons_in(path: Path) -> list[dict[str, Any]]:
    """The entries of a list that is kept as data: each has a ``reason``."""
    return tomllib.loads(path.read_text(encoding="utf-8"))["because"]


NOT_ALIGNED = tuple(
    NotAligned(place, group["reason"], group.get("by_chance", False))
    for group in reasons_in(Path(__file__).with_name("not_aligned.toml"))
    for place in group["places"]
)
"""What is deliberately not compared."""


@dataclass(frozen=True)
class Unlisted:
    """A place that nothing accounts for; ``to`` is None for a line that did not run."""

    file: str
    line: int
    text: str
    to: int | None = None

    def __str__(self) -> str:
        jump = "" if self.to is None else f" (never goes on {_target(self.to)})"
        return f"{PRODUCT_NAME}/{self.file}:{self.line}: {self.text}{jump}"


def _target(line: int) -> str:
    return "to the end of the function" if line < 0 else f"with line {line}"


@dataclass(frozen=True)
class Verdict:
    """What of the product no case runs.

    Attributes:
        unlisted: by file, every file of the product; empty where all is accounted for.
        stale: entries of the list that accept nothing.
        counts: of statements: ``statements``, ``executed``, ``refusals``, ``listed``, ``unlisted``.
    """

    unlisted: Mapping[str, Sequence[Unlisted]]
    stale: Sequence[NotAligned]
    counts: Mapping[str, int]


def verdict_on(
    record: Record, sources: Mapping[str, SourceFile], listed: Sequence[NotAligned]
) -> Verdict:
    """Look for each place that did not run whether something accounts for it.

    Args:
        record: what ran.
        sources: the files of the record.
        listed: the list.
    """
    unlisted: dict[str, list[Unlisted]] = {}
    counts = dict.fromkeys(("statements", "executed", "refusals", "listed", "unlisted"), 0)
    used: set[NotAligned] = set()
    for file, found in record.items():
        source = sources[file]
        named = {entry: entry.lines(file, source) for entry in listed}
        unlisted[file] = []
        counts["executed"] += len(found.executed)
        counts["statements"] += len(found.executed) + len(found.missing)
        for line, to in _places(found):
            ends = {line} if to is None else {line, to}
            entries = {entry for entry, lines in named.items() if ends & lines}
            refuses = bool(ends & source.refusals)
            used |= set() if refuses else entries
            kind = "refusals" if refuses else "listed" if entries else "unlisted"
            if to is None:
                counts[kind] += 1
            if kind == "unlisted":
                unlisted[file].append(Unlisted(file, line, source.line(line), to))
    stale = [entry for entry in listed if entry not in used and not entry.by_chance]
    return Verdict(unlisted, stale, counts)


def _places(found: FileRecord) -> Iterator[tuple[int, int | None]]:
    """Lines that did not run, and jumps between lines that did, in the order of the file."""
    places: list[tuple[int, int | None]] = [(line, None) for line in found.missing]
    places += [
        (start, end)
        for start, end in found.branches
        if start not in found.missing and end not in found.missing
    ]
    return iter(sorted(places, key=lambda place: (place[0], place[1] or 0)))
